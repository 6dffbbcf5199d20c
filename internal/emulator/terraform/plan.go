package main

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// fakePlan is a plan, which apply reads from its file. That is an archive, as Terraform's own is: beside the
// plan it has the module's files.
type fakePlan struct {
	Destroy bool
	Targets []string
	Shown   map[string]any // what show prints
}

func (f *fake) plan(args []string) {
	p := fakePlan{Destroy: slices.Contains(args, "-destroy")}
	file := ""
	for _, arg := range args {
		if target, ok := strings.CutPrefix(arg, "-target="); ok {
			p.Targets = append(p.Targets, target)
		}
		if out, ok := strings.CutPrefix(arg, "-out="); ok {
			file = out
		}
	}
	if file != "" {
		p.Shown = f.shown(p)
		writePlan(file, p)
	}
	for _, c := range f.drifted() {
		c := c.(map[string]any)
		what := map[string]any{"action": c["change"].(map[string]any)["actions"].([]string)[0],
			"resource": map[string]any{"addr": c["address"], "resource_type": c["type"]}}
		say(map[string]any{"@message": fmt.Sprint(c["address"], ": drift"), "type": "resource_drift",
			"change": what})
	}
	if f.carryOut(p, "planned_change", false) && slices.Contains(args, "-detailed-exitcode") {
		os.Exit(2)
	}
}

// writePlan writes a plan with the module that it was made of.
func writePlan(file string, p fakePlan) {
	modules := []any{map[string]any{"Key": "", "Dir": "."}}
	entries := map[string]any{"tfplan": p, "tfconfig/modules.json": modules}
	names, err := filepath.Glob("*.tf")
	check(err)
	for _, name := range names {
		text, err := os.ReadFile(name)
		check(err)
		entries["tfconfig/m-/"+name] = text
	}
	var archive bytes.Buffer
	w := zip.NewWriter(&archive)
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		data, is := entries[name].([]byte)
		if !is {
			data, err = json.Marshal(entries[name])
			check(err)
		}
		entry, err := w.Create(name)
		check(err)
		_, err = entry.Write(data)
		check(err)
	}
	check(w.Close())
	check(os.WriteFile(file, archive.Bytes(), 0o600))
}

func readPlan(file string) (p fakePlan) {
	archive, err := zip.OpenReader(file)
	check(err)
	data, err := fs.ReadFile(archive, "tfplan")
	check(err)
	check(json.Unmarshal(data, &p))
	check(archive.Close())
	return p
}

// show prints what the plan in a file holds.
func (f *fake) show(file string) { say(readPlan(file).Shown) }

// shown tells what a plan would make, with all the attributes that it has.
func (f *fake) shown(p fakePlan) map[string]any {
	changes, had, variables := []any{}, f.state().addresses(), map[string]any{}
	for name, value := range f.inputs {
		variables[name] = map[string]any{"value": value}
	}
	for _, address := range had {
		isTarget := len(p.Targets) == 0 || slices.Contains(p.Targets, address)
		if p.Destroy && isTarget || !p.Destroy && !f.has(address) {
			kind, _, _ := strings.Cut(address, ".")
			changes = append(changes, map[string]any{"address": address, "mode": "managed", "type": kind,
				"change": map[string]any{"actions": []string{"delete"},
					"before": f.state().attributes(address)}})
		}
	}
	for _, address := range slices.Sorted(maps.Keys(f.Resources)) {
		kind, _, _ := strings.Cut(address, ".")
		if slices.Contains(had, address) && !p.Destroy {
			changes = append(changes, f.showOld(address, kind))
			continue
		}
		if p.Destroy {
			continue
		}
		changes = append(changes, map[string]any{"address": address, "mode": "managed", "type": kind,
			"change": map[string]any{
				"actions": []string{"create"}, "after": f.Attributes[address],
			}})
	}
	return map[string]any{"format_version": "1.2", "terraform_version": "1.14.0", "variables": variables,
		"resource_changes": changes, "resource_drift": f.drifted()}
}

// drifted tells what a refresh would find changed since the last apply.
func (f *fake) drifted() []any {
	var was fakeState
	readJSON(statePath(), &was)
	found, now := []any{}, f.state()
	for _, address := range was.addresses() {
		kind, _, _ := strings.Cut(address, ".")
		before, after := was.attributes(address), now.attributes(address)
		actions := []string{"update"}
		switch {
		case after == nil:
			actions = []string{"delete"}
		case same(before, after):
			continue
		}
		found = append(found, map[string]any{"address": address, "mode": "managed", "type": kind,
			"change": map[string]any{"actions": actions, "before": before, "after": after}})
	}
	return found
}

// showOld tells what a plan would make of a resource that exists.
func (f *fake) showOld(address, kind string) map[string]any {
	actions, old := []string{"no-op"}, f.state().attributes(address)
	now := f.resource(address)["instances"].([]any)[0].(map[string]any)["attributes"]
	switch {
	case slices.Contains(f.Unlike, address), slices.Contains(f.Tainted, address):
		actions = []string{"delete", "create"}
	case !same(old, now):
		actions = []string{"update"}
	}
	return map[string]any{"address": address, "mode": "managed", "type": kind, "change": map[string]any{
		"actions": actions, "before": old, "after": now, "replace_paths": []any{[]any{"inputs"}},
	}}
}
