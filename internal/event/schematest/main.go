// Command schematest checks events that castle printed or left in a journal against the published schemas:
//
//	schematest DOCS SCRIPT FILE...
//
// DOCS is the folder of the schemas. Lines that the SCRIPT itself holds are made up, or damaged on purpose.
// It is a program of its own: in the test binary, each castle of a script would load the metaschemas.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: schematest DOCS SCRIPT FILE...")
		os.Exit(2)
	}
	if err := check(os.Args[1], os.Args[2], os.Args[3:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// check says which lines of which files are invalid.
func check(docs, name string, files []string) error {
	s, err := load(docs)
	if err != nil {
		return err
	}
	script, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	for _, file := range files {
		text, unread := os.ReadFile(file)
		if errors.Is(unread, fs.ErrPermission) { // as the script left it
			continue
		}
		err = errors.Join(err, unread)
		for _, wrong := range s.invalid(text, script, filepath.Base(file) == "journal.jsonl") {
			err = errors.Join(err, fmt.Errorf("%s:%s", file, wrong))
		}
	}
	return err
}

// schemas are the published ones, without the room for later versions: an event has no other fields than
// those of its kind.
type schemas struct{ event, plan *jsonschema.Schema }

func load(docs string) (s schemas, err error) {
	for name, into := range map[string]**jsonschema.Schema{"events": &s.event, "plan": &s.plan} {
		file := filepath.Join(docs, name+".schema.json")
		text, err := os.ReadFile(file)
		if err != nil {
			return s, err
		}
		document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err != nil {
			return s, err
		}
		closed(document)
		c := jsonschema.NewCompiler()
		c.AssertFormat()
		if err := c.AddResource(file, document); err != nil {
			return s, err
		}
		if *into, err = c.Compile(file); err != nil {
			return s, err
		}
	}
	return s, nil
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

// invalid returns which lines of a script's events the schema refuses, and why. A plan is one document with
// a schema of its own. A last line without an end was cut short; a journal may have one in its middle, too,
// from a kill.
func (s schemas) invalid(text, script []byte, journal bool) (wrong []string) {
	if !journal && bytes.HasPrefix(text, []byte("{\n")) {
		document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err == nil {
			err = s.plan.Validate(document)
		}
		if err != nil {
			return []string{fmt.Sprintf(" %v", err)}
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
			err = s.event.Validate(one)
		}
		if err != nil {
			wrong = append(wrong, fmt.Sprintf("%d: %v\n  %s", i+1, err, line))
		}
	}
	return wrong
}
