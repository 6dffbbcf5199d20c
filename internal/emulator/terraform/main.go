// Command terraform is the Terraform of castle's scripts. It reads no configuration: a module's fake.json
// defines its resources, its outputs and its failures. castle calls it more often than a script calls castle,
// so it is a program of its own: it starts without castle's packages and without the race detector.
package main

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
)

// fake is what a module's fake.json says; ${name} in a string is the value of
// the input of that name. The fake appends its calls to files in HOME, the one
// place that castle passes on: record (stage and command), argv, environ, and
// interrupts (those that it receives while it waits). The file drift in HOME changes
// the world until an apply of the stage: a line is a stage, an address, and the
// attribute that somebody has changed, or nothing if the resource is gone.
type fake struct {
	Resources map[string]string // address: the provider's source, "" for the built-in one
	// Attributes are those that a resource has in the state, by address.
	Attributes map[string]map[string]any
	Outputs    map[string]struct {
		Value     any
		Sensitive bool
	}
	Exists []string // addresses that an import finds, beside those in the file exists in HOME
	Unlike []string // addresses of which a plan says that it would replace them
	// Tainted are those that a plan replaces because they were made by half.
	Tainted []string
	// Refuses says, by address, why apply cannot make a resource.
	Refuses map[string]string
	Says    string                 // what apply logs
	Fails   map[string]fakeFailure // by command
	// commands that wait, at the FIFOs waiting and go in HOME; state: before it is written, unless by a
	// destroy
	Waits  []string
	Begins string // the resource that it has begun while it waits
	// Finishes says that an interrupt does not end a command that waits.
	Finishes bool

	stage  string
	inputs map[string]any
}

type fakeFailure struct {
	Summary, Detail string
	Until           string // a file in HOME; once it is there, nothing fails
	Times           int    // how often it fails at most; for ever if zero
}

// fakePlan is a plan, which apply reads from its file. That is an archive, as Terraform's own is: beside the
// plan it has the module's files.
type fakePlan struct {
	Destroy bool
	Targets []string
	Shown   map[string]any // what show prints
}

type fakeState struct {
	Version   int              `json:"version"`
	Serial    int              `json:"serial"`
	Lineage   string           `json:"lineage"`
	Outputs   map[string]any   `json:"outputs"`
	Resources []map[string]any `json:"resources"`
}

func main() {
	args := os.Args[1:]
	cwd, err := os.Getwd()
	check(err)
	f := &fake{stage: "-", inputs: map[string]any{}}
	if filepath.Base(cwd) == "work" {
		f.stage = filepath.Base(filepath.Dir(cwd))
	}
	readJSON("fake.json", f)
	readJSON("castle.auto.tfvars.json", &f.inputs)
	if args[0] != "version" || f.stage == "-" { // terraform-exec asks for it before most commands
		appendTo("record", f.stage+" "+args[0])
	}
	appendTo("argv", fmt.Sprintf("%s %q", f.stage, args))
	appendTo("environ", strings.Join(os.Environ(), "\n"))
	f.wait(args[0])
	f.fail(args[0])
	switch args[0] {
	case "version":
		fmt.Println(`{"terraform_version": "1.14.0"}`)
	case "init":
		backend := map[string]any{
			"backend": map[string]any{"type": "local", "config": map[string]any{"path": statePath()}},
		}
		writeJSON(filepath.Join(os.Getenv("TF_DATA_DIR"), "terraform.tfstate"), backend)
	case "plan":
		f.plan(args)
	case "apply":
		f.apply(args)
	case "show":
		f.show(args[len(args)-1])
	case "import":
		f.adopt(args)
	default:
		if args[0] == "state" && args[1] == "rm" {
			f.untrack(args[2:])
			break
		}
		fmt.Printf("ran terraform %s for %s\n", strings.Join(args, " "), f.stage)
	}
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

func (f *fake) apply(args []string) {
	var p fakePlan
	if last := args[len(args)-1]; strings.HasSuffix(last, "tfplan") {
		p = readPlan(last)
	} else if slices.Contains(args, "-json") {
		f.carryOut(p, "planned_change", false)
	}
	f.carryOut(p, "apply_complete", true)
	if f.Says != "" {
		fmt.Println(f.expand(f.Says))
	}
}

// carryOut tells what a plan changes, and changes it if it is to be kept.
func (f *fake) carryOut(p fakePlan, message string, keep bool) bool {
	old := f.state()
	next := old
	next.Outputs, next.Resources = map[string]any{}, []map[string]any{}
	if !p.Destroy {
		for name, out := range f.Outputs {
			value := f.expand(out.Value)
			next.Outputs[name] = map[string]any{"value": value, "type": implied(value),
				"sensitive": out.Sensitive}
		}
	}
	had, refused := map[string]bool{}, []string{}
	for _, r := range old.Resources {
		address := fmt.Sprintf("%v.%v", r["type"], r["name"])
		had[address] = true
		switch {
		case !p.Destroy && f.has(address):
		case !p.Destroy:
			tellWhy(message, "delete", address, "delete_because_no_resource_config")
		case len(p.Targets) > 0 && !slices.Contains(p.Targets, address):
			next.Resources = append(next.Resources, r)
		default:
			tell(message, "delete", address)
		}
	}
	for _, address := range slices.Sorted(maps.Keys(f.Resources)) {
		if p.Destroy {
			break
		}
		if why := f.Refuses[address]; why != "" && keep && !had[address] {
			tell("apply_errored", "create", address)
			refused = append(refused, address)
			continue
		}
		next.Resources = append(next.Resources, f.resource(address))
		switch {
		case !had[address]:
			tell(message, "create", address)
		case slices.Contains(f.Unlike, address):
			tellWhy(message, "replace", address, "cannot_update")
		case slices.Contains(f.Tainted, address):
			tellWhy(message, "replace", address, "tainted")
		case !same(old.attributes(address), next.attributes(address)):
			tell(message, "update", address)
		}
	}
	changes := old.content() != next.content() || slices.ContainsFunc(slices.Concat(f.Unlike, f.Tainted),
		func(a string) bool { return had[a] && !p.Destroy })
	if keep && (changes || old.Serial == 0) {
		if !p.Destroy {
			f.wait("state")
		}
		next.Serial++
		writeJSON(statePath(), next)
		others := slices.DeleteFunc(drift(),
			func(line string) bool { return strings.HasPrefix(line, f.stage+" ") })
		check(os.WriteFile(inHome("drift"), []byte(strings.Join(others, "\n")), 0o600))
	}
	for _, address := range refused {
		say(map[string]any{"@message": f.Refuses[address], "type": "diagnostic", "diagnostic": map[string]any{
			"severity": "error", "summary": f.Refuses[address], "address": address,
		}})
	}
	if len(refused) > 0 {
		os.Exit(1)
	}
	return changes
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

// wait stops at the FIFO waiting until somebody reads it, then at go until
// somebody writes it. An interrupt ends it as it ends Terraform.
func (f *fake) wait(command string) {
	if !slices.Contains(f.Waits, command) {
		return
	}
	interrupted, released := make(chan os.Signal, 8), make(chan bool)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	if f.Begins != "" {
		hook := map[string]any{"action": "create", "resource": map[string]any{"addr": f.Begins}}
		say(map[string]any{"@message": f.Begins + ": begun", "type": "apply_start", "hook": hook})
	}
	go func() {
		check(os.WriteFile(inHome("waiting"), nil, 0))
		_, err := os.ReadFile(inHome("go"))
		check(err)
		close(released)
	}()
	for {
		select {
		case <-released:
			return
		case sig := <-interrupted:
			appendTo("interrupts", fmt.Sprint(f.stage, " ", command, " ", sig))
			if !f.Finishes {
				f.die("Operation canceled", "")
			}
		}
	}
}

func (f *fake) fail(command string) {
	failure, fails := f.Fails[command]
	if !fails {
		return
	}
	if _, err := os.Stat(inHome(failure.Until)); failure.Until != "" && err == nil {
		return
	}
	if failure.Times > 0 && f.failed(command) >= failure.Times {
		return
	}
	appendTo("failed", f.stage+" "+command)
	f.die(f.expand(failure.Summary).(string), f.expand(failure.Detail).(string))
}

// failed is how often a command has failed for this stage.
func (f *fake) failed(command string) (times int) {
	data, err := os.ReadFile(inHome("failed"))
	if !errors.Is(err, fs.ErrNotExist) {
		check(err)
	}
	for line := range strings.Lines(string(data)) {
		if line == f.stage+" "+command+"\n" {
			times++
		}
	}
	return times
}

func (f *fake) die(summary, detail string) {
	if slices.Contains(os.Args, "-json") {
		say(map[string]any{"@message": summary, "type": "diagnostic", "diagnostic": map[string]any{
			"severity": "error", "summary": summary, "detail": detail,
		}})
	} else {
		fmt.Fprintf(os.Stderr, "\nError: %s\n\n%s\n", summary, detail)
	}
	os.Exit(1)
}

func (f *fake) expand(v any) any {
	s, ok := v.(string)
	if !ok {
		return v
	}
	return os.Expand(s, func(name string) string { return fmt.Sprint(f.inputs[name]) })
}

// content is what a state says, whether it was read or made.
func (s fakeState) content() string {
	data, err := json.Marshal([]any{s.Outputs, s.Resources})
	check(err)
	return string(data)
}

var backendPath = regexp.MustCompile(`path = "(.*)"`)

func statePath() string {
	data, err := os.ReadFile("castle_override.tf")
	check(err)
	return string(backendPath.FindSubmatch(data)[1])
}

func inHome(name string) string { return filepath.Join(os.Getenv("HOME"), name) }

func appendTo(name, line string) {
	check(os.MkdirAll(os.Getenv("HOME"), 0o700))
	file, err := os.OpenFile(inHome(name), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	check(err)
	_, err = file.WriteString(line + "\n")
	check(errors.Join(err, file.Close()))
}

func tell(message, action, address string) { tellWhy(message, action, address, "") }

func tellWhy(message, action, address, reason string) {
	kind, _, _ := strings.Cut(address, ".")
	what := map[string]any{"action": action, "reason": reason,
		"resource": map[string]any{"addr": address, "resource_type": kind}}
	if message != "planned_change" {
		say(map[string]any{"@message": address + ": begun", "type": "apply_start", "hook": what})
	}
	say(map[string]any{"@message": address + ": " + action, "type": message, "change": what, "hook": what})
}

func say(message any) { check(json.NewEncoder(os.Stdout).Encode(message)) }

func writeJSON(path string, v any) {
	data, err := json.Marshal(v)
	check(err)
	check(os.WriteFile(path, data, 0o600))
}

// readJSON leaves v as it is if there is no such file.
func readJSON(path string, v any) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	check(err)
	check(json.Unmarshal(data, v))
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "\nError: fake terraform:", err)
		os.Exit(1)
	}
}
