// Command terraform is the Terraform of castle's scripts. It reads no configuration: a module's fake.json
// defines its resources, its outputs and its failures. castle calls it more often than a script calls castle,
// so it is a program of its own: it starts without castle's packages and without the race detector.
package main

import (
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
		if slices.Contains(args, "-json") {
			fmt.Println(`{"terraform_version": "1.14.0"}`)
		} else {
			fmt.Println("Terraform v1.14.0")
		}
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

var backendPath = regexp.MustCompile(`path = "(.*)"`)

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
