package docs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/ephemeral-castle/castle/internal/cli"
)

var (
	// A line of code: a command at its beginning, after a prompt or settings of the environment.
	commandLine = regexp.MustCompile(`^(?:\$ )?(?:[A-Z_]+=\S* )*(?:bin/)?castle(?: .*)?$`)
	// A command within such a line, or within a span of code.
	command = regexp.MustCompile(`(?:^|[\s('"$/])castle((?: +[^\s|;&)>'"\\#]+)*)`)
	spans   = regexp.MustCompile("`([^`]+)`")
)

// TestShownCommandsExist checks that castle has every command that README,
// documentation, templates and help show, with its flags.
func TestShownCommandsExist(t *testing.T) {
	count := 0
	check := func(place, line string) {
		for _, m := range command.FindAllStringSubmatch(line, -1) {
			count++
			if err := exists(strings.Fields(m[1])); err != nil {
				t.Errorf("%s: castle%s: %v", place, m[1], err)
			}
		}
	}
	for _, file := range texts(t) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for n, line := range strings.Split(string(text), "\n") {
			place := fmt.Sprintf("%s:%d", file, n+1)
			if code := strings.TrimSpace(line); commandLine.MatchString(code) && isCode(file, line) {
				check(place, code)
				continue
			}
			for _, m := range spans.FindAllStringSubmatch(line, -1) {
				if commandLine.MatchString(m[1]) {
					check(place, m[1])
				}
			}
			for _, m := range regexpSubshell.FindAllString(line, -1) {
				check(place, m)
			}
		}
	}
	if count < 50 {
		t.Errorf("only %d commands found", count)
	}
	each(cli.Command(), func(c *cobra.Command) {
		for line := range strings.Lines(c.Example) {
			check("castle help "+c.CommandPath(), strings.TrimSpace(line))
		}
	})
}

// regexpSubshell finds $(castle …) anywhere in a line.
var regexpSubshell = regexp.MustCompile(`\$\(castle [^)]*\)`)

// texts are the files that show commands to a user.
func texts(t *testing.T) []string {
	t.Helper()
	files := documents(t)
	more, err := filepath.Glob("../templates/*/next.txt")
	if err != nil || len(more) == 0 {
		t.Fatalf("templates/*/next.txt: %v, %v", more, err)
	}
	return append(files, more...)
}

// isCode reports whether a line that looks like a command is one, and no prose
// that begins with the word castle: it is indented, or ends without a full stop.
func isCode(file, line string) bool {
	if strings.HasPrefix(line, "    ") || strings.HasPrefix(line, "\t") || filepath.Ext(file) == ".txt" {
		return true
	}
	words := strings.Fields(line)
	return len(words) > 1 && known(words[1])
}

func known(name string) bool {
	for _, c := range cli.Command().Commands() {
		if c.Name() == name {
			return true
		}
	}
	return false
}

// exists returns what castle does not know of a command line.
func exists(words []string) error {
	c, positional := cli.Command(), false
	for i := 0; i < len(words); i++ {
		word := strings.Trim(words[i], "[],.:…")
		switch {
		case word == "--":
			return nil
		case word == "-": // standard input
		case strings.HasPrefix(word, "-"):
			name, _, joined := strings.Cut(strings.TrimLeft(word, "-"), "=")
			flag := c.Flag(name)
			if !strings.HasPrefix(word, "--") {
				if flag = c.Flags().ShorthandLookup(name[:1]); flag == nil {
					flag = c.InheritedFlags().ShorthandLookup(name[:1])
				}
			}
			if flag == nil && name != "help" && name != "h" {
				return fmt.Errorf("%s has no flag %s", c.CommandPath(), word)
			}
			if flag != nil && !joined && flag.NoOptDefVal == "" {
				i++ // its value
			}
		case word == "" || positional:
		case c.HasSubCommands():
			next, _, err := c.Find([]string{word})
			if takes := strings.Contains(c.Use, " "); takes && (err != nil || next == c) {
				positional = true // an argument of its own
				continue
			}
			if err != nil || next == c {
				return fmt.Errorf("%s has no command %s", c.CommandPath(), word)
			}
			c = next
		default:
			positional = true
		}
	}
	return nil
}

func each(c *cobra.Command, do func(*cobra.Command)) {
	do(c)
	for _, sub := range c.Commands() {
		each(sub, do)
	}
}
