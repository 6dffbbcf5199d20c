package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ephemeral-castle/castle/internal/fault"
)

// faultLine is a line of the script: fault NAME STAGE GATE 'WORDS'.
var faultLine = regexp.MustCompile(`(?m)^fault (\S+) (\S+) (\S+) '([^']*)'`)

// TestFaultsHaveASection checks that docs/faults.md has a section for each fault of the lab, and that the
// lines in it are what castle prints: the script that injects the faults waits for those words.
func TestFaultsHaveASection(t *testing.T) {
	sections, names := map[string]string{}, []string(nil)
	for _, section := range strings.Split(read(t, "faults.md"), "\n## ")[1:] {
		name, text, _ := strings.Cut(section, "\n")
		sections[name] = text
		names = append(names, name)
	}
	var faults []string
	for _, f := range fault.All() {
		faults = append(faults, f.Name)
	}
	if !slices.Equal(names, faults) {
		t.Errorf("sections: %v, want the faults: %v", names, faults)
	}
	expected := faultLine.FindAllStringSubmatch(read(t, "../cmd/castle/testdata/faults/faults.txtar"), -1)
	if len(expected) == 0 {
		t.Fatal("the script injects no faults")
	}
	shown := map[string]bool{}
	for _, e := range expected {
		name, stage, gate, words := e[1], e[2], e[3], e[4]
		sample := regexp.MustCompile(`(?m)^    \S+ +` + regexp.QuoteMeta(stage) + ` +` +
			regexp.QuoteMeta(gate) + ` +closed: (.*)$`).FindStringSubmatch(sections[name])
		shown[name] = shown[name] || sample != nil && regexp.MustCompile(words).MatchString(sample[1])
	}
	for name, is := range shown {
		if !is {
			t.Errorf("the section %s shows no line with the words that faults.txtar expects", name)
		}
	}
}

// TestFaultsAreRehearsed checks that a test of the command line injects each fault of the lab.
func TestFaultsAreRehearsed(t *testing.T) {
	files, err := filepath.Glob("../cmd/castle/*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	var tests strings.Builder
	for _, file := range files {
		tests.WriteString(read(t, file))
	}
	for _, f := range fault.All() {
		if !strings.Contains(tests.String(), `"`+f.Name+`=`) {
			t.Errorf("no test of cmd/castle injects %s", f.Name)
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
