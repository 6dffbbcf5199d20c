package check_test

import (
	"bytes"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"golang.org/x/tools/txtar"

	"github.com/ephemeral-castle/castle/internal/check"
	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/ui"
	"github.com/ephemeral-castle/castle/stages"
	"github.com/ephemeral-castle/castle/templates"
)

// options check the repository in dir as `castle check` does.
func options(dir string) check.Options {
	return check.Options{
		Config: config.Options{
			Repository: dir, Gates: cluster.GateTypes(), Preflights: cluster.PreflightTypes(),
			Exists:  cluster.ExistsTypes(),
			Library: stages.Library, Templates: templates.Files, CastleVersion: "development",
		},
		StateDir: filepath.Join(dir, ".state"),
	}
}

// printed returns the output that a user reads.
func printed(t *testing.T, r *check.Report) string {
	t.Helper()
	var w bytes.Buffer
	if _, err := ui.WriteDiagnostics(&w, r.Diagnostics, r.Files, false); err != nil {
		t.Fatal(err)
	}
	return w.String()
}

// write lays the files of archives into a folder, later ones over earlier ones.
// A section "edit FILE" changes lines instead: those that begin with - are
// replaced by those after them that begin with +. "copy SOURCE" copies a stage
// of castle's into the repository, and "mode 755 PATH" opens a file to others.
func write(t *testing.T, dir string, archives ...*txtar.Archive) {
	t.Helper()
	for _, a := range archives {
		for _, f := range a.Files {
			name, isEdit := strings.CutPrefix(f.Name, "edit ")
			path := filepath.Join(dir, filepath.FromSlash(name))
			data := f.Data
			if source, isCopy := strings.CutPrefix(f.Name, "copy "); isCopy {
				module, err := fs.Sub(stages.Library, source)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.CopyFS(filepath.Join(dir, "stages", source), module); err != nil {
					t.Fatal(err)
				}
				continue
			}
			if strings.HasPrefix(name, "mode ") || name == "want" {
				continue
			}
			if isEdit {
				old, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				data = edited(t, string(old), string(f.Data))
			}
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, a := range archives {
		for _, f := range a.Files {
			if name, ok := strings.CutPrefix(f.Name, "mode 755 "); ok {
				if err := os.Chmod(filepath.Join(dir, name), 0o755); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

func edited(t *testing.T, text, edit string) []byte {
	t.Helper()
	var old, changed string
	apply := func() {
		if old == "" && changed == "" {
			return
		}
		if strings.Count(text, old) != 1 {
			t.Fatalf("the base has %d times:\n%s", strings.Count(text, old), old)
		}
		text = strings.Replace(text, old, changed, 1)
		old, changed = "", ""
	}
	for line := range strings.Lines(edit) {
		switch line[0] {
		case '-':
			if changed != "" {
				apply()
			}
			old += line[1:]
		case '+':
			changed += line[1:]
		default:
			t.Fatalf("neither - nor +: %s", line)
		}
	}
	apply()
	return []byte(text)
}

func archive(t *testing.T, path string) *txtar.Archive {
	t.Helper()
	a, err := txtar.ParseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// validated finds the place of a validation that a finding names.
var validated = regexp.MustCompile(`<embedded>/stages/(\S+):(\d+)\.$`)

// withoutMessages replaces an error_message at the start of a finding with $ERROR_MESSAGE. It must belong to
// the validation whose place the finding names: only the module holds the text.
func withoutMessages(t *testing.T, text string) string {
	t.Helper()
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if at := validated.FindStringSubmatch(line); at != nil {
			if rest, ok := strings.CutPrefix(line, errorMessage(t, at[1], at[2])+" "); ok {
				lines[i] = "$ERROR_MESSAGE " + rest
			}
		}
	}
	return strings.Join(lines, "\n")
}

// errorMessage reads the error_message of the validation at a line of the library.
func errorMessage(t *testing.T, path, line string) string {
	t.Helper()
	content, err := fs.ReadFile(stages.Library, path)
	if err != nil {
		t.Fatal(err)
	}
	file, problems := hclsyntax.ParseConfig(content, path, hcl.InitialPos)
	if problems.HasErrors() {
		t.Fatal(problems)
	}
	for _, variable := range file.Body.(*hclsyntax.Body).Blocks {
		for _, b := range variable.Body.Blocks {
			if b.Type == "validation" && strconv.Itoa(b.DefRange().Start.Line) == line {
				message, problems := b.Body.Attributes["error_message"].Expr.Value(nil)
				if problems.HasErrors() {
					t.Fatal(problems)
				}
				return message.AsString()
			}
		}
	}
	t.Fatalf("%s has no validation in line %s", path, line)
	return ""
}

// TestEachRuleReportsProblemAndFix checks a fixture for every rule: its
// name is the rule's, and the text is asserted to the letter, except for
// $ERROR_MESSAGE. With CASTLE_UPDATE_SCRIPTS the texts are written anew.
func TestEachRuleReportsProblemAndFix(t *testing.T) {
	fixtures, err := filepath.Glob("testdata/rules/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	tested := map[string]bool{}
	for _, path := range fixtures {
		name := strings.TrimSuffix(filepath.Base(path), ".txtar")
		rule, _, _ := strings.Cut(name, ".")
		tested[rule] = true
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, fixture := t.TempDir(), archive(t, path)
			write(t, dir, archive(t, "testdata/base.txtar"), fixture)
			report, err := check.Run(options(dir))
			if err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(report.Diagnostics, func(d *hcl.Diagnostic) bool {
				return string(check.RuleOf(d)) == rule
			}) {
				t.Errorf("the rule %s reports nothing", rule)
			}
			got := withoutMessages(t, strings.ReplaceAll(printed(t, report), dir, "$REPO"))
			want := slices.IndexFunc(fixture.Files, func(f txtar.File) bool { return f.Name == "want" })
			switch {
			case os.Getenv("CASTLE_UPDATE_SCRIPTS") != "":
				if want < 0 {
					fixture.Files, want = append(fixture.Files, txtar.File{Name: "want"}), len(fixture.Files)
				}
				fixture.Files[want].Data = []byte(got)
				if err := os.WriteFile(path, txtar.Format(fixture), 0o644); err != nil {
					t.Fatal(err)
				}
			case want < 0 || string(fixture.Files[want].Data) != got:
				t.Errorf("got\n%s", got)
			}
		})
	}
	for _, r := range check.Rules() {
		if !tested[string(r.Kind)] {
			t.Errorf("no fixture shows the rule %s", r.Kind)
		}
	}
}

func TestRepositoryClustersPass(t *testing.T) {
	report, err := check.Run(options("../.."))
	if err != nil {
		t.Fatal(err)
	}
	if text := printed(t, report); text != "" || len(report.Clusters) < 2 {
		t.Errorf("checked %v:\n%s", report.Clusters, text)
	}
}

func TestBaseFixturePasses(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, archive(t, "testdata/base.txtar"))
	start := time.Now()
	report, err := check.Run(options(dir))
	t.Logf("took %s", time.Since(start))
	if err != nil {
		t.Fatal(err)
	}
	if text := printed(t, report); text != "" {
		t.Error(text)
	}
}

func TestAllClustersShareTheStagesThatAreRead(t *testing.T) {
	dir := t.TempDir() // without stages of its own
	if err := os.CopyFS(filepath.Join(dir, "clusters"), os.DirFS("../../clusters")); err != nil {
		t.Fatal(err)
	}
	for _, clusters := range [][]string{nil, {"blue"}} { // all, and one that is compared with the others
		o := options(dir)
		library := &counted{FS: stages.Library, opened: map[string]int{}}
		o.Config.Library, o.Clusters = library, clusters
		if _, err := check.Run(o); err != nil {
			t.Fatal(err)
		}
		if library.opened["platform/proxmox-talos/stage.hcl"] == 0 {
			t.Error("the platform was not read")
		}
		for name, times := range library.opened {
			if times > 1 && path.Base(name) == "stage.hcl" {
				t.Errorf("check %v: %s was read %d times", clusters, name, times)
			}
		}
	}
}

// counted counts how often each file is opened.
type counted struct {
	fs.FS
	mu     sync.Mutex
	opened map[string]int
}

func (c *counted) Open(name string) (fs.File, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.opened[name]++
	return c.FS.Open(name)
}
