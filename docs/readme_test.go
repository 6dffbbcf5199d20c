package docs_test

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/ephemeral-castle/castle/internal/cli"
)

func readme(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestReadmeHasAtMost120Lines(t *testing.T) {
	if n := strings.Count(readme(t), "\n"); n > 120 {
		t.Errorf("README.md has %d lines; move details to docs/", n)
	}
}

func TestReadmeListsEveryCommand(t *testing.T) {
	text := readme(t)
	each(cli.Command(), func(c *cobra.Command) {
		if c.HasSubCommands() || !c.Runnable() || c.Hidden || c.Name() == "help" {
			return
		}
		row, parent := "\n| `"+c.CommandPath(), "\n| `"+c.Parent().CommandPath()+"` |"
		if !strings.Contains(text, row+"`") && !strings.Contains(text, row+" ") &&
			!strings.Contains(text, parent) {
			t.Errorf("the table of commands in README.md lacks %s", c.CommandPath())
		}
	})
}

func TestBlueSvgIsWhatCastleGraphDraws(t *testing.T) {
	drawn, err := os.ReadFile("blue.svg")
	if err != nil {
		t.Fatal(err)
	}
	var svg, problems bytes.Buffer
	// An empty state directory: durations of a run would differ on each machine.
	args := []string{"-C", "..", "graph", "blue", "-o", "svg", "--state-dir", t.TempDir()}
	if code := cli.Main("development", args, strings.NewReader(""), &svg, &problems); code != 0 {
		t.Fatalf("exit code %d: %s", code, &problems)
	}
	if !bytes.Equal(drawn, svg.Bytes()) {
		t.Error("docs/blue.svg is outdated; draw it anew with: make docs")
	}
}
