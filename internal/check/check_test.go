package check_test

import (
	"bytes"
	"encoding/binary"
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
	"unicode/utf16"

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
			Exists: cluster.ExistsTypes(), Survivors: cluster.SurvivorTypes(),
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

// write lays the files of archives into a folder, later ones over earlier ones. Sections of these names do
// something else:
//
//	edit FILE      lines that begin with - are replaced by those after them that begin with +
//	copy SOURCE    a stage of castle's is copied into the repository
//	folder PATH    an empty folder
//	remove PATH    a file or folder is removed
//	rename FILE    the section holds the new name
//	windows FILE   a byte order mark, CRLF and tabs
//	utf16 FILE     another encoding
//	mode MODE PATH in the end
func write(t *testing.T, dir string, archives ...*txtar.Archive) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	modes := map[string]fs.FileMode{}
	for _, a := range archives {
		for _, f := range a.Files {
			verb, rest, ok := strings.Cut(f.Name, " ")
			if !ok {
				verb, rest = "", f.Name
			}
			path, data := filepath.Join(dir, filepath.FromSlash(rest)), f.Data
			read := func() string {
				old, err := os.ReadFile(path)
				must(err)
				return string(old)
			}
			switch verb {
			case "copy":
				module, err := fs.Sub(stages.Library, rest)
				must(err)
				must(os.CopyFS(filepath.Join(dir, "stages", rest), module))
				continue
			case "folder":
				must(os.MkdirAll(path, 0o700))
				continue
			case "remove":
				must(os.RemoveAll(path))
				continue
			case "rename":
				must(os.Rename(path, filepath.Join(dir, strings.TrimSpace(string(data)))))
				continue
			case "mode":
				mode, name, _ := strings.Cut(rest, " ")
				bits, err := strconv.ParseUint(mode, 8, 32)
				must(err)
				modes[name] = fs.FileMode(bits)
				continue
			case "edit":
				data = edited(t, read(), string(data))
			case "windows":
				tabs := strings.NewReplacer("\n", "\r\n", "  ", "\t")
				data = []byte("\ufeff" + tabs.Replace(read()))
			case "utf16":
				data = []byte("\xff\xfe")
				for _, c := range utf16.Encode([]rune(read())) {
					data = binary.LittleEndian.AppendUint16(data, c)
				}
			}
			if rest == "want" {
				continue
			}
			must(os.MkdirAll(filepath.Dir(path), 0o700))
			must(os.WriteFile(path, data, 0o600))
		}
	}
	for name, mode := range modes {
		must(os.Chmod(filepath.Join(dir, name), mode))
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

// withoutMessages replaces the error_message in a finding with $ERROR_MESSAGE. It must belong to
// the validation whose place the finding names: only the module holds the text.
func withoutMessages(t *testing.T, text string) string {
	t.Helper()
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if at := validated.FindStringSubmatch(line); at != nil {
			message := errorMessage(t, at[1], at[2])
			if message != "" {
				lines[i] = strings.Replace(line, message, "$ERROR_MESSAGE", 1)
			}
		}
	}
	return strings.Join(lines, "\n")
}

// errorMessage reads the error_message of the validation at a line of the library; "" if none is there.
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
	for i, path := range fixtures {
		name := strings.TrimSuffix(filepath.Base(path), ".txtar")
		rule, _, _ := strings.Cut(name, ".")
		if tested[rule] = true; i%every != 0 {
			continue
		}
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
			compare(t, path, fixture, got)
		})
	}
	for _, r := range check.Rules() {
		if !tested[string(r.Kind)] {
			t.Errorf("no fixture shows the rule %s", r.Kind)
		}
	}
}

// compare compares an output with the section want of a fixture, or updates that with CASTLE_UPDATE_SCRIPTS.
func compare(t *testing.T, path string, fixture *txtar.Archive, got string) {
	t.Helper()
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
		if library.opened["platform/proxmox-machines/stage.hcl"] == 0 {
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
