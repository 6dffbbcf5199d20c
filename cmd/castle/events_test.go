package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/santhosh-tekuri/jsonschema/v6"
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
		slices.Contains(args, "report") {
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
	script, err := os.ReadFile(filepath.Join(folder, path.Base(t.Name())+".txtar"))
	if err != nil {
		return err
	}
	env.Defer(func() {
		err := filepath.WalkDir(env.WorkDir, func(path string, d fs.DirEntry, err error) error {
			isJournal := d != nil && d.Name() == "journal.jsonl"
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) { // as the script left it
				return nil
			}
			if err != nil || !d.Type().IsRegular() || !isJournal && filepath.Dir(path) != kept {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil && !errors.Is(err, fs.ErrPermission) {
				return err
			}
			for _, wrong := range invalid(t.Name(), text, script, isJournal) {
				t.Errorf("%s:%s", strings.TrimPrefix(path, env.WorkDir+"/"), wrong)
			}
			return nil
		})
		if err != nil {
			t.Errorf("the events of %s: %v", t.Name(), err)
		}
	})
	return nil
}

// invalid returns which lines of a script's events the schema refuses, and why. A plan is one document with
// a schema of its own. A last line without an end was cut short; a journal may have one in its middle, too,
// from a kill.
func invalid(name string, text, script []byte, journal bool) (wrong []string) {
	if !journal && bytes.HasPrefix(text, []byte("{\n")) {
		document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		schema, broken := planSchema()
		if err = cmp.Or(err, broken); err == nil {
			err = schema.Validate(document)
		}
		if err != nil {
			return []string{fmt.Sprintf("%s: %v", name, err)}
		}
		return nil
	}
	for i, line := range bytes.SplitAfter(text, []byte("\n")) {
		whole := bytes.HasSuffix(line, []byte("\n"))
		if line = bytes.TrimSpace(line); !whole || bytes.Contains(script, line) {
			continue
		}
		one, err := jsonschema.UnmarshalJSON(bytes.NewReader(line))
		if err != nil && journal {
			continue
		}
		if err == nil {
			schema, broken := eventSchema()
			if broken != nil {
				return []string{broken.Error()}
			}
			err = schema.Validate(one)
		}
		if err != nil {
			wrong = append(wrong, fmt.Sprintf("%d: %s: %v\n  %s", i+1, name, err, line))
		}
	}
	return wrong
}

// The published schemas, without the room for later versions: an event has no other fields than those of its
// kind.
var (
	eventSchema = sync.OnceValues(func() (*jsonschema.Schema, error) { return published("events") })
	planSchema  = sync.OnceValues(func() (*jsonschema.Schema, error) { return published("plan") })
)

func published(of string) (*jsonschema.Schema, error) {
	name := "../../docs/" + of + ".schema.json"
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	closed(document)
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource(name, document); err != nil {
		return nil, err
	}
	return c.Compile(name)
}

// closed forbids other fields wherever a schema lists them.
func closed(schema any) {
	switch s := schema.(type) {
	case []any:
		for _, one := range s {
			closed(one)
		}
	case map[string]any:
		for _, one := range s {
			closed(one)
		}
		if fields, lists := s["properties"].(map[string]any); lists && s["required"] != nil {
			names := []any{}
			for _, field := range slices.Sorted(maps.Keys(fields)) {
				names = append(names, field)
			}
			s["propertyNames"] = map[string]any{"enum": names}
		}
	}
}

func TestTheSchemaRefusesWhatIsNoEvent(t *testing.T) {
	const begin = `{"time":"2026-03-01T12:00:00Z","run":"r",`
	for line, valid := range map[string]bool{
		begin + `"kind":"notice","text":"x"}`:                               true,
		begin + `"kind":"notice"}`:                                          false,
		begin + `"kind":"notice","text":"x","stage":"seed"}`:                false,
		begin + `"kind":"notice","text":"x","other":1}`:                     false,
		begin + `"kind":"rumour","text":"x"}`:                               false,
		`{"time":"yesterday","run":"r","kind":"notice","text":"x"}`:         false,
		`{"time":"2026-03-01T12:00:00Z","kind":"notice","text":"x"}`:        false,
		`{"time":"2026-03-01T12:00:00Z","kind":"config_error","text":"x"}`:  true,
		begin + `"kind":"run_ended","text":"ok","seconds":1,"ending":{}}`:   false,
		begin + `"kind":"run_ended","text":"ok","seconds":1,"ending":null}`: false,
		begin + `"kind":"run_ended","text":"ok","seconds":1,"ending":{"result":"succeeded","exit_code":0,` +
			`"stages":{"ready":1},"seconds":1,"causes":[]}}`: true,
		begin + `"kind":"run_ended","text":"ok","seconds":1,"ending":{"result":"splendid","exit_code":0,` +
			`"stages":{"ready":1},"seconds":1,"causes":[]}}`: false,
		begin + `"kind":"run_ended","text":"ok","seconds":1,"ending":{"result":"succeeded","exit_code":0,` +
			`"stages":{"splendid":1},"seconds":1,"causes":[]}}`: false,
	} {
		wrong := invalid("script", []byte(line+"\n"), nil, false)
		if valid != (len(wrong) == 0) {
			t.Errorf("%s: valid: %t, got %q", line, valid, wrong)
		}
	}
	torn := []byte(begin + "\n{}")
	if wrong := invalid("script", torn, nil, true); len(wrong) > 0 {
		t.Errorf("a line of a journal that was cut short: %q", wrong)
	}
	wrong := invalid("script", torn, nil, false)
	if len(wrong) != 1 || !strings.HasPrefix(wrong[0], "1: script: ") {
		t.Errorf("a printed line that is no JSON: %q", wrong)
	}
}
