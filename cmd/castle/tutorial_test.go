//go:build integration

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	durations = regexp.MustCompile(`\b([0-9]+m)?[0-9]+(\.[0-9]+)?s\b`)
	blanks    = regexp.MustCompile(`\s+`)
	whoever   = regexp.MustCompile(`by \S+@\S+`)
)

// TestTutorial types the commands of docs/tutorial.md and compares what they print with the page. Durations
// may differ, and lines may be left out only where the page has "…".
func TestTutorial(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/tutorial.md")
	if err != nil {
		t.Fatal(err)
	}
	typed(t, "docs/tutorial.md", string(page))
}

// TestFleetTutorial types the tutorial of docs/fleet.md likewise, with three clusters and real Terraform.
func TestFleetTutorial(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/fleet.md")
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	_, tutorial, _ := strings.Cut(string(page), "## Tutorial")
	typed(t, "docs/fleet.md", tutorial, "HOME="+home, "CASTLE_STATE_DIR="+filepath.Join(home, "state"))
}

// typed types the commands of a page in an empty folder.
func typed(t *testing.T, name, page string, environ ...string) {
	t.Helper()
	bin, err := filepath.Abs("../../bin")
	if err != nil {
		t.Fatal(err)
	}
	var want []string // the typed lines and the printed ones
	for line := range strings.Lines(page) {
		if line, is := strings.CutPrefix(line, "    "); is {
			want = append(want, strings.TrimRight(line, "\n"))
		}
	}
	shell := exec.CommandContext(t.Context(), "sh", "-e")
	shell.Dir, shell.Env = t.TempDir(), append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
	shell.Env = append(shell.Env, environ...)
	shell.Stdin = strings.NewReader(session(want))
	var out bytes.Buffer
	shell.Stdout, shell.Stderr = &out, &out
	if err := shell.Run(); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	compare(t, name, want, strings.Split(out.String(), "\n"))
}

// session returns what the shell reads: each typed line, printed first. The lines between the one that opens
// the lab's shell and its exit are the input of that shell.
func session(want []string) string {
	var script strings.Builder
	for _, line := range want {
		typed, is := strings.CutPrefix(line, "$ ")
		if !is {
			continue
		}
		script.WriteString("cat <<'END_OF_LINE'\n" + line + "\nEND_OF_LINE\n")
		switch {
		case strings.HasSuffix(typed, "-- sh"):
			script.WriteString(typed + " -e <<'END_OF_SHELL'\n")
		case typed == "exit":
			script.WriteString("END_OF_SHELL\n")
		default:
			script.WriteString(typed + "\n")
		}
	}
	return script.String()
}

// compare fails unless the page's lines are those that were printed.
func compare(t *testing.T, name string, want, printed []string) {
	t.Helper()
	at, skip := 0, false
	for _, line := range want {
		if line == "…" {
			skip = true
			continue
		}
		found := at
		for found < len(printed) && !alike(line, printed[found]) {
			found++
		}
		if found == len(printed) || found > at && !skip {
			t.Fatalf("%s has the line\n%s\nand castle printed\n%s", name, line,
				strings.Join(printed[at:], "\n"))
		}
		at, skip = found+1, false
	}
}

// alike reports whether a line of the page and a printed one are the same but for durations, blanks and
// who typed it. An "…" at the end stands for anything.
func alike(line, printed string) bool {
	start, open := strings.CutSuffix(normalized(line), "…")
	if open {
		return strings.HasPrefix(normalized(printed), strings.TrimSpace(start))
	}
	return start == normalized(printed)
}

func normalized(line string) string {
	line = durations.ReplaceAllString(whoever.ReplaceAllString(line, "by somebody"), "0s")
	return strings.TrimSpace(blanks.ReplaceAllString(line, " "))
}
