package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ephemeral-castle/castle/internal/cli"
)

// TestReferenceIsGenerated holds the pages of docs/reference against the code, and writes them if
// CASTLE_UPDATE_SCRIPTS is set. It fails, too, if an attribute of a configuration file has no comment.
func TestReferenceIsGenerated(t *testing.T) {
	generated, err := pages()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range generated {
		if os.Getenv("CASTLE_UPDATE_SCRIPTS") != "" {
			if err := os.WriteFile(filepath.Join("reference", name), []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(filepath.Join("reference", name))
		if err != nil || string(got) != want {
			t.Errorf("docs/reference/%s is outdated (%v); generate it anew with: make docs", name, err)
		}
	}
	index, err := os.ReadFile("reference/README.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("reference/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		name := filepath.Base(file)
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if _, is := generated[name]; !is && strings.Contains(string(text), "<!-- Generated") {
			t.Errorf("%s is not generated any more; remove it", file)
		}
		if name != "README.md" && !strings.Contains(string(index), "]("+name+")") {
			t.Errorf("reference/README.md does not link to %s", name)
		}
	}
}

var (
	castleVariable = regexp.MustCompile(`"(CASTLE_[A-Z_]+)`)
	readVariable   = regexp.MustCompile(`[gG]et(?:env)?\((?:[a-zA-Z.]+, )?"([A-Z_]+)"`)
)

// TestVariablesAreThoseThatCastleReads compares the table of variables with the code.
func TestVariablesAreThoseThatCastleReads(t *testing.T) {
	listed := map[string]bool{}
	for _, group := range cli.Variables() {
		for _, v := range group.Variables {
			listed[v.Name] = true
		}
	}
	// The runners of GitHub and GitLab set them beside GITHUB_ACTIONS and GITLAB_CI, shells set HOME, the
	// others are Go's and those of libraries.
	others := []string{"GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY", "GITHUB_WORKSPACE", "CI_PROJECT_DIR", "HOME",
		"LC_CTYPE", "LANG", "TRACESTATE", "PGDATABASE", "GOGC", "STORAGE_EMULATOR_HOST",
		"CASTLE_LEADS", "CASTLE_COMPARED"} // castle sets them for itself
	var code strings.Builder
	err := filepath.WalkDir("../internal", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.Name() == "emulator" || d.Name() == "testdata" {
			return fs.SkipDir
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || d.Name() == "help.go" {
			return nil
		}
		text, err := os.ReadFile(path)
		code.Write(text)
		for _, pattern := range []*regexp.Regexp{castleVariable, readVariable} {
			for _, m := range pattern.FindAllStringSubmatch(string(text), -1) {
				if !listed[m[1]] && !slices.Contains(others, m[1]) {
					t.Errorf("%s: castle reads %s, which cli.Variables does not list", path, m[1])
				}
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for name := range listed {
		name = strings.TrimSuffix(name, "NAME") // of TF_VAR_NAME
		if !strings.Contains(code.String(), name) {
			t.Errorf("cli.Variables lists %s, which castle does not read", name)
		}
	}
}
