package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
)

type fakeState struct {
	Version   int              `json:"version"`
	Terraform string           `json:"terraform_version"`
	Serial    int              `json:"serial"`
	Lineage   string           `json:"lineage"`
	Outputs   map[string]any   `json:"outputs"`
	Resources []map[string]any `json:"resources"`
}

// implied returns the type that Terraform implies of a value, as a state writes it.
func implied(value any) any {
	switch v := value.(type) {
	case string:
		return "string"
	case bool:
		return "bool"
	case float64:
		return "number"
	case []any:
		types := []any{}
		for _, element := range v {
			types = append(types, implied(element))
		}
		return []any{"tuple", types}
	case map[string]any:
		types := map[string]any{}
		for name, attribute := range v {
			types[name] = implied(attribute)
		}
		return []any{"object", types}
	}
	return "dynamic" // null
}

func (f *fake) state() fakeState {
	s := fakeState{Version: 4, Lineage: "lineage of " + f.stage, Outputs: map[string]any{},
		Resources: []map[string]any{}}
	readJSON(statePath(), &s)
	s.Terraform = cmp.Or(os.Getenv("FAKE_VERSION"), "1.14.0")
	for _, line := range drift() {
		fields := append(strings.Fields(line), "")
		s.Resources = slices.DeleteFunc(s.Resources, func(r map[string]any) bool {
			if fields[0] != f.stage || fields[1] != fmt.Sprintf("%v.%v", r["type"], r["name"]) {
				return false
			}
			attributes := r["instances"].([]any)[0].(map[string]any)["attributes"].(map[string]any)
			attributes[fields[2]] = "by hand"
			return fields[2] == ""
		})
	}
	return s
}

// drift returns the lines of the file drift.
func drift() []string {
	data, err := os.ReadFile(inHome("drift"))
	if !errors.Is(err, fs.ErrNotExist) {
		check(err)
	}
	return strings.FieldsFunc(string(data), func(r rune) bool { return r == '\n' })
}

func (s fakeState) addresses() (all []string) {
	for _, r := range s.Resources {
		all = append(all, fmt.Sprintf("%v.%v", r["type"], r["name"]))
	}
	return all
}

// attributes are what a state says of a resource.
func (s fakeState) attributes(address string) any {
	for _, r := range s.Resources {
		if fmt.Sprintf("%v.%v", r["type"], r["name"]) == address {
			return r["instances"].([]any)[0].(map[string]any)["attributes"]
		}
	}
	return nil
}

func (f *fake) has(address string) bool { _, has := f.Resources[address]; return has }

func same(a, b any) bool {
	one, err := json.Marshal(a)
	check(err)
	other, err := json.Marshal(b)
	check(err)
	return string(one) == string(other)
}

func (f *fake) resource(address string) map[string]any {
	kind, name, _ := strings.Cut(address, ".")
	source := f.Resources[address]
	if source == "" {
		source = "terraform.io/builtin/terraform"
	}
	attributes := map[string]any{"inputs": fmt.Sprint(f.inputs)}
	maps.Copy(attributes, f.Attributes[address])
	return map[string]any{
		"mode": "managed", "type": kind, "name": name, "provider": `provider["` + source + `"]`,
		"instances": []any{map[string]any{"attributes": attributes}},
	}
}

func (f *fake) adopt(args []string) {
	address := args[len(args)-2]
	made, err := os.ReadFile(inHome("exists"))
	if !errors.Is(err, fs.ErrNotExist) {
		check(err)
	}
	if !slices.Contains(slices.Concat(f.Exists, strings.Fields(string(made))), address) {
		f.die("Cannot import non-existent remote object", "There is none.")
	}
	if slices.ContainsFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "-state=") }) {
		return // somebody only asks
	}
	s := f.state()
	s.Serial++
	s.Resources = append(s.Resources, f.resource(address))
	writeJSON(statePath(), s)
}

func (f *fake) untrack(addresses []string) {
	s := f.state()
	s.Serial++
	s.Resources = slices.DeleteFunc(s.Resources, func(r map[string]any) bool {
		return slices.Contains(addresses, fmt.Sprintf("%v.%v", r["type"], r["name"]))
	})
	writeJSON(statePath(), s)
}

// content is what a state says, whether it was read or made.
func (s fakeState) content() string {
	data, err := json.Marshal([]any{s.Outputs, s.Resources})
	check(err)
	return string(data)
}

func statePath() string {
	data, err := os.ReadFile("castle_override.tf")
	check(err)
	return string(backendPath.FindSubmatch(data)[1])
}
