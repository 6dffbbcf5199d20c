//go:build integration

package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"sigs.k8s.io/yaml"
)

// workflow is what the runner reads of .github/workflows/castle.yml.
type workflow struct {
	Jobs map[string]*workflowJob
}

type workflowJob struct {
	If    string
	Needs string
	Env   map[string]string
	Steps []workflowStep
	// Outputs are expressions for the jobs that need this one.
	Outputs map[string]string
}

type workflowStep struct {
	ID                  string
	Name, If, Uses, Run string
	With                map[string]any
	Env                 map[string]string
}

// forge stands for GitHub: a repository, its secrets, and the runs of its workflow. Each job gets a machine
// of its own, which has the paths of the others and nothing of theirs.
type forge struct {
	t          *testing.T
	folder     string
	repository string            // what a job checks out
	secrets    map[string]string // secrets and variables: "secrets.VAULT_TOKEN"
	runs       int
	started    func(*exec.Cmd) // called for each script; may be nil
}

// forgeRun is one run of the workflow.
type forgeRun struct {
	id      string
	results map[string]string // of its jobs: success, failure or skipped
	logs    map[string]string
	summary map[string]string
	names   map[string]string // for expressions
}

func readWorkflow(t *testing.T, path string) *workflow {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	w := &workflow{}
	must(t, yaml.Unmarshal(text, w))
	return w
}

// trigger runs the jobs that an event starts, in order. names are those of the event for expressions:
// github.event_name.
func (f *forge) trigger(names map[string]string) *forgeRun {
	f.t.Helper()
	f.runs++
	r := &forgeRun{id: fmt.Sprint(1000 + f.runs), results: map[string]string{}, logs: map[string]string{},
		summary: map[string]string{}, names: maps.Clone(f.secrets)}
	maps.Copy(r.names, names)
	maps.Copy(r.names, map[string]string{"github.run_id": r.id, "github.repository": "me/castles",
		"github.token": "token-of-the-job", "runner.temp": f.path("temp")})
	f.continueRun(r)
	return r
}

// continueRun runs the jobs of a run that have no result yet.
func (f *forge) continueRun(r *forgeRun) {
	f.t.Helper()
	w := readWorkflow(f.t, filepath.Join(f.repository, ".github/workflows/castle.yml"))
	ids := slices.Sorted(maps.Keys(w.Jobs))
	slices.SortStableFunc(ids, func(a, b string) int { return len(w.Jobs[a].Needs) - len(w.Jobs[b].Needs) })
	for _, id := range ids { // one that needs another one comes last
		job := w.Jobs[id]
		if r.results[id] != "" {
			continue
		}
		blocked := job.Needs != "" && r.results[job.Needs] != "success" &&
			!strings.Contains(job.If, "cancelled()")
		if blocked || !isTrue(evaluate(job.If, r.names, false)) {
			r.results[id] = "skipped"
		} else {
			r.results[id] = f.job(r, id, job)
		}
		r.names["needs."+id+".result"] = r.results[id]
	}
}

// again runs a job of a run once more, as a person does who has lost a runner.
func (f *forge) again(r *forgeRun, id string) {
	f.t.Helper()
	delete(r.results, id)
	f.continueRun(r)
}

func (f *forge) path(names ...string) string {
	return filepath.Join(append([]string{f.folder, "machine"}, names...)...)
}

// job runs one job on a new machine.
func (f *forge) job(r *forgeRun, id string, job *workflowJob) string {
	f.t.Helper()
	f.newMachine()
	env := f.environ()
	for name, value := range job.Env {
		env[name] = substitute(value, r.names)
	}
	failed := false
	var log bytes.Buffer
	for i, step := range job.Steps {
		condition := step.If
		if condition == "" {
			condition = "success()"
		}
		always := strings.Contains(condition, "always()") || strings.Contains(condition, "cancelled()") ||
			strings.Contains(condition, "success()")
		if failed && !always || !isTrue(evaluate(condition, r.names, failed)) {
			continue
		}
		fmt.Fprintf(&log, "== %s %s %s\n", id, step.Name, step.Uses)
		own := maps.Clone(env)
		for name, value := range step.Env {
			own[name] = substitute(value, r.names)
		}
		var err error
		if step.Uses != "" {
			err = f.use(r, step)
		} else {
			err = f.script(fmt.Sprint(i), step.Run, own, &log)
			f.collect(env)
			for _, line := range f.lines("output") {
				name, value, _ := strings.Cut(line, "=")
				r.names["steps."+step.ID+".outputs."+name] = value
			}
		}
		if err != nil {
			fmt.Fprintln(&log, err)
			failed = true
		}
	}
	summary, err := os.ReadFile(f.path("commands", "summary"))
	if err != nil && !os.IsNotExist(err) {
		f.t.Fatal(err)
	}
	r.logs[id], r.summary[id] = log.String(), string(summary)
	for name, value := range job.Outputs {
		r.names["needs."+id+".outputs."+name] = substitute(value, r.names)
	}
	f.t.Logf("run %s: %s\n%s", r.id, id, &log)
	if failed {
		return "failure"
	}
	return "success"
}

// newMachine removes everything that a job has left.
func (f *forge) newMachine() {
	f.t.Helper()
	must(f.t, os.RemoveAll(f.path()))
	for _, name := range []string{"home", "temp", "commands", "castles/castles"} {
		must(f.t, os.MkdirAll(f.path(name), 0o700))
	}
}

// environ is the environment of a machine: that of the lab for Terraform and the network, without any
// credentials and without castle's.
func (f *forge) environ() map[string]string {
	env := map[string]string{}
	for _, kv := range os.Environ() {
		name, value, _ := strings.Cut(kv, "=")
		keep := slices.Contains([]string{"PATH", "TF_CLI_CONFIG_FILE", "CHECKPOINT_DISABLE", "TMPDIR", "LANG",
			"INFISICAL_HOST", "PROXMOX_VE_ENDPOINT"}, name)
		if keep || strings.HasPrefix(name, "SSL_CERT_") {
			env[name] = value
		}
	}
	maps.Copy(env, map[string]string{"HOME": f.path("home"), "CI": "true", "GITHUB_ACTIONS": "true",
		"GITHUB_REPOSITORY": "me/castles", "GITHUB_WORKSPACE": f.path("castles/castles"),
		"RUNNER_TEMP": f.path("temp"), "GITHUB_ENV": f.path("commands", "env"),
		"GITHUB_PATH": f.path("commands", "path"), "GITHUB_OUTPUT": f.path("commands", "output"),
		"GITHUB_STEP_SUMMARY": f.path("commands", "summary")})
	return env
}

// script runs a script as `shell: bash` does.
func (f *forge) script(name, text string, env map[string]string, log *bytes.Buffer) error {
	file := f.path("commands", name+".sh")
	must(f.t, os.WriteFile(file, []byte(text), 0o600))
	cmd := exec.Command("bash", "--noprofile", "--norc", "-eo", "pipefail", file)
	cmd.Dir, cmd.Stdout, cmd.Stderr = env["GITHUB_WORKSPACE"], log, log
	for name, value := range env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	must(f.t, cmd.Start())
	if f.started != nil {
		f.started(cmd)
	}
	return cmd.Wait()
}

// collect reads what a script has told the runner for the next ones.
func (f *forge) collect(env map[string]string) {
	for _, line := range f.lines("env") {
		name, value, _ := strings.Cut(line, "=")
		env[name] = value
	}
	for _, folder := range f.lines("path") {
		env["PATH"] = folder + ":" + env["PATH"]
	}
}

// lines reads a file of the runner.
func (f *forge) lines(name string) []string {
	text, err := os.ReadFile(f.path("commands", name))
	if err != nil && !os.IsNotExist(err) {
		f.t.Fatal(err)
	}
	return strings.Fields(string(text))
}

// use does what an action does: check the repository out, keep a file, or fetch one that a run has kept.
func (f *forge) use(r *forgeRun, step workflowStep) error {
	f.t.Helper()
	with := func(name string) string { return substitute(fmt.Sprint(step.With[name]), r.names) }
	action, _, _ := strings.Cut(step.Uses, "@")
	switch action {
	case "actions/checkout":
		return os.CopyFS(f.path("castles/castles"), os.DirFS(f.repository))
	case "actions/upload-artifact":
		return move(with("path"), f.artifact(r.id, with("name"), filepath.Base(with("path"))))
	case "actions/download-artifact":
		kept, err := filepath.Glob(f.artifact(with("run-id"), with("name"), "*"))
		if err != nil || len(kept) == 0 {
			return fmt.Errorf("run %s has no %s", with("run-id"), with("name"))
		}
		return move(kept[0], filepath.Join(with("path"), filepath.Base(kept[0])))
	}
	f.t.Fatalf("unknown action %s", action)
	return nil
}

func (f *forge) artifact(run string, names ...string) string {
	return filepath.Join(append([]string{f.folder, "artifacts", run}, names...)...)
}

// move copies a file as an artifact is: everybody may read it.
func move(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(to, data, 0o644); err != nil {
		return err
	}
	return os.Chmod(to, 0o644)
}
