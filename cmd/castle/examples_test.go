package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"

	"github.com/ephemeral-castle/castle/internal/cli"
)

// examples runs the examples in the help of castle's commands, as a user's shell does:
//
//	examples COMMAND...          they exit with 0, or with 3 where castle asks and --yes is missing
//	examples -parse COMMAND...   castle accepts their flags and arguments; nothing runs
//	examples -parse=PATTERN COMMAND...   likewise, only for those that match; the others run
func examples(ts *testscript.TestScript, neg bool, args []string) {
	var only *regexp.Regexp
	if len(args) > 0 && strings.HasPrefix(args[0], "-parse") {
		only = regexp.MustCompile(strings.TrimPrefix(strings.TrimPrefix(args[0], "-parse"), "="))
		args = args[1:]
	}
	if neg || len(args) == 0 {
		ts.Fatalf("usage: examples [-parse[=PATTERN]] COMMAND...")
	}
	for _, name := range args {
		cmd, rest, err := cli.Command().Find(strings.Split(name, "/"))
		if err != nil || len(rest) > 0 || cmd.Example == "" {
			ts.Fatalf("castle %s has no example: %v", name, err)
		}
		for _, line := range exampleLines(cmd) {
			path := ts.Getenv("PATH")
			if only != nil && only.MatchString(line) {
				ts.Setenv("PATH", filepath.Join(ts.Getenv("WORK"), ".parse")+":"+path)
			}
			want := "0"
			asks := slices.Contains([]string{"destroy", "recreate"}, name) && !strings.Contains(line, "--yes")
			if asks && (only == nil || !only.MatchString(line)) {
				want = "3"
			}
			exits(ts, false, []string{want, "bash", "-euc", line})
			ts.Setenv("PATH", path)
		}
	}
}

// exampleLines returns the examples of a command, one for each line that does not continue the one before.
func exampleLines(cmd *cobra.Command) (all []string) {
	for line := range strings.SplitSeq(strings.ReplaceAll(cmd.Example, "\\\n", ""), "\n") {
		all = append(all, strings.TrimSpace(line))
	}
	return all
}

// parsing puts a castle into a folder that checks flags and arguments, and runs nothing.
func parsing(env *testscript.Env) error {
	source, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		return err
	}
	env.Setenv("SOURCE", source)
	folder := filepath.Join(env.WorkDir, ".parse")
	if err := os.Mkdir(folder, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, "castle"),
		[]byte("#!/bin/sh\nGORACE="+race+" exec castle-parse \"$@\"\n"), 0o755)
}

// parse is castle without the work of its commands.
func parse() {
	root := cli.Command()
	var disable func(*cobra.Command)
	disable = func(cmd *cobra.Command) {
		if cmd.RunE != nil {
			cmd.RunE = func(*cobra.Command, []string) error { return nil }
		}
		for _, sub := range cmd.Commands() {
			disable(sub)
		}
	}
	disable(root)
	root.SetArgs(os.Args[1:])
	if err := root.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	os.Exit(0)
}

func TestEveryCommandHasExamplesThatAScriptRuns(t *testing.T) {
	script, err := os.ReadFile("testdata/script/examples.txtar")
	if err != nil {
		t.Fatal(err)
	}
	var run []string
	for line := range strings.Lines(string(script)) {
		if words := strings.Fields(line); len(words) > 0 && words[0] == "examples" {
			run = append(run, words[1:]...)
		}
	}
	var check func(cmd *cobra.Command)
	check = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			check(sub)
		}
		if cmd.HasSubCommands() || !cmd.Runnable() {
			return
		}
		name := strings.ReplaceAll(strings.TrimPrefix(cmd.CommandPath(), "castle "), " ", "/")
		if cmd.Example == "" {
			t.Errorf("castle help %s shows no example", name)
		} else if !slices.Contains(run, name) {
			t.Errorf("examples.txtar does not run those of %s", name)
		}
	}
	check(cli.Command())
}

var documentRow = regexp.MustCompile("(?m)^\\| `([^`]+)` (\\*?) ?\\|")

// stateFiles asserts that docs/reference/state-directory.md lists every file of the state directory.
func stateFiles(ts *testscript.TestScript, neg bool, args []string) {
	page, err := os.ReadFile(filepath.Join(ts.Getenv("SOURCE"), "docs", "reference", "state-directory.md"))
	ts.Check(err)
	var known []string
	for _, row := range documentRow.FindAllStringSubmatch(string(page), -1) {
		path := regexp.QuoteMeta(row[1])
		for _, name := range []string{"cluster", "platform", "stage", "run"} {
			path = strings.ReplaceAll(path, "<"+name+">", "[^/]+")
		}
		path = strings.TrimSuffix(path, "/") + map[bool]string{true: "/.*"}[strings.HasSuffix(path, "/")]
		if row[2] != "" {
			path += `(\.copy)?`
		}
		if path != "[^/]+/[^/]+/.*" { // the heading of the other tables
			known = append(known, path)
		}
	}
	listed := regexp.MustCompile("^([^/]+/[^/]+/)?(" + strings.Join(known, "|") + ")$")
	root, count := ts.Getenv("CASTLE_STATE_DIR"), 0
	ts.Check(filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		count++
		if name := strings.TrimPrefix(path, root+"/"); !listed.MatchString(name) {
			return fmt.Errorf("docs/reference/state-directory.md lacks %s", name)
		}
		return nil
	}))
	if neg || len(args) > 0 || count == 0 {
		ts.Fatalf("usage: statefiles, when there are some")
	}
}
