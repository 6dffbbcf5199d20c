package main

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"

	"github.com/rogpeppe/go-internal/testscript"
)

// printedKey is the variable with the folder that keeps what commands print as JSON.
const printedKey = "PRINTED_EVENTS"

// keepEvents returns the standard output of castle. A script's castle that prints events also keeps them.
func keepEvents(args []string) io.Writer {
	folder := os.Getenv(printedKey)
	isEvents := func(arg string) bool {
		return slices.Contains([]string{"create", "destroy", "recreate", "plan"}, arg)
	}
	if folder == "" || !slices.Contains(args, "json") || !slices.ContainsFunc(args, isEvents) ||
		slices.Contains(args, "report") || slices.Contains(args, "fleet") && slices.Contains(args, "plan") {
		return os.Stdout
	}
	f, err := os.CreateTemp(folder, "*.jsonl")
	switch {
	case errors.Is(err, fs.ErrPermission): // castle runs as another user
		return os.Stdout
	case err != nil:
		panic(err)
	}
	return io.MultiWriter(os.Stdout, f)
}

// checkEvents validates, at the end of a script of a folder, each event that castle printed or left in a
// journal. Lines that the script itself holds are made up, or damaged on purpose.
func checkEvents(env *testscript.Env, folder string) error {
	kept := filepath.Join(env.WorkDir, ".printed")
	if err := os.Mkdir(kept, 0o700); err != nil {
		return err
	}
	env.Setenv(printedKey, kept)
	t := env.T().(interface {
		Name() string
		Errorf(string, ...any)
	})
	script := filepath.Join(folder, path.Base(t.Name())+".txtar")
	if err := schematest(); err != nil {
		return err
	}
	env.Defer(func() {
		args := []string{"../../docs", script}
		err := filepath.WalkDir(env.WorkDir, func(path string, d fs.DirEntry, err error) error {
			isJournal := d != nil && d.Name() == "journal.jsonl"
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) { // as the script left it
				return nil
			}
			if err == nil && d.Type().IsRegular() && (isJournal || filepath.Dir(path) == kept) {
				args = append(args, path)
			}
			return err
		})
		if err == nil && len(args) > 2 {
			err = runHelper(exec.Command("schematest", args...))
		}
		if err != nil {
			t.Errorf("the events of %s: %v", t.Name(), err)
		}
	})
	return nil
}
