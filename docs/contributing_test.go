package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// repositoryPath is the path of a file or folder in a span of code, without a placeholder.
var repositoryPath = regexp.MustCompile(
	"^(?:bench|clusters|cmd|docs|internal|lab|stages|templates)(?:/[A-Za-z0-9_.-]+)+$")

var declaration = regexp.MustCompile(`(?m)^func (Test[A-Za-z0-9]+)\(`)

// testName is the name of a test in a span of code.
var testName = regexp.MustCompile(`^\^?(Test[A-Z][A-Za-z0-9]*)`)

// TestContributingNamesWhatExists finds a file, a folder or a test that has moved away under the lists.
func TestContributingNamesWhatExists(t *testing.T) {
	text := read(t, "../CONTRIBUTING.md")
	tests := declaredTests(t)
	count := 0
	for _, m := range spans.FindAllStringSubmatch(text, -1) {
		if repositoryPath.MatchString(m[1]) {
			count++
			if _, err := os.Stat(filepath.Join("..", m[1])); err != nil {
				t.Errorf("CONTRIBUTING.md: %v", err)
			}
		}
		if name := testName.FindStringSubmatch(m[1]); name != nil && !tests[name[1]] {
			t.Errorf("CONTRIBUTING.md: there is no test %s", name[1])
		}
	}
	if count < 50 {
		t.Errorf("only %d paths found", count)
	}
}

// declaredTests are the names of all tests of the repository.
func declaredTests(t *testing.T) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	err := filepath.WalkDir("..", func(path string, _ os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range declaration.FindAllSubmatch(text, -1) {
			all[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
