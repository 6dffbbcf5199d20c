//go:build integration

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"filippo.io/age"
	"sigs.k8s.io/yaml"
)

// fleetJob is what the runner reads of a job of castle-fleet.yml.
type fleetJob struct {
	If       string
	Needs    []string
	Strategy struct{ Matrix struct{ Include string } }
	Env      map[string]string
	Steps    []workflowStep
	Outputs  map[string]string
}

// TestFleetPipeline runs the jobs of castle ci --fleet, job after job, of GitHub and of GitLab, with a fake
// Terraform. Each job has a new machine; the jobs share the store alone.
func TestFleetPipeline(t *testing.T) {
	must(t, fakeTerraform())
	bin := t.TempDir()
	must(t, os.WriteFile(filepath.Join(bin, "terraform"),
		[]byte("#!/bin/sh\nexec fake-terraform \"$@\"\n"), 0o755))
	t.Setenv("PATH", bin+string(filepath.ListSeparator)+os.Getenv("PATH"))
	f := newFleetForge(t)
	empty := f.commit("nothing", map[string]string{"README.md": "clusters\n"})
	files := map[string]string{"fleet.hcl": `
wave "staging" {
  select = "env=staging"
  canary = 1
  soak   = "1s"
}
wave "production" {
  select   = "env=production"
  approval = true
  pause    = "1s"
  parallel = 2
}
`}
	for name, labels := range map[string]string{"blue": `env = "staging", site = "rome"`,
		"red": `env = "staging", site = "milan"`, "green": `env = "production"`} {
		files["clusters/"+name+"/proxmox/cluster.hcl"] = "cluster { labels = { " + labels + " } }\n" +
			"stage \"pool\" { source = \"networking/pool\" }\n"
	}
	for _, stage := range []string{"pool", "burning"} {
		folder := "stages/networking/" + stage
		files[folder+"/stage.hcl"] = "stage {}\n"
		files[folder+"/main.tf"] = "variable \"size\" {\n  type    = number\n  default = 1\n}\n"
		files[folder+"/fake.json"] = "{\"resources\": {\"terraform_data." + stage + "\": \"\"}}"
	}
	files["stages/networking/burning/fake.json"] = `{"fails": {"apply": {"summary": "the rack is on fire"}}}`
	f.write(files)
	for _, system := range []string{"github", "gitlab"} {
		f.castle("ci", system, "--fleet")
	}
	all := f.commit("all", nil)

	f.expectJobs("a fork", f.triggerFleet("pull_request", empty, "eve/castles"), nil)
	f.expectJobs("a review", f.triggerFleet("pull_request", empty, "me/castles"), map[string]string{
		"changed": "success", "plan blue/proxmox rome": "success", "plan red/proxmox milan": "success",
		"plan green/proxmox self-hosted": "success"})
	first := f.triggerFleet("push", empty, "")
	f.expectJobs("the first push", first, map[string]string{"changed": "success",
		"wave-staging-canary blue/proxmox rome": "success", "wave-staging red/proxmox milan": "success",
		"begin-production": "success", "wave-production green/proxmox self-hosted": "success",
		"summary": "success"})
	f.contains(first.summary["changed"], "blue/proxmox", "new")
	f.contains(first.summary["summary"], "production  green/proxmox  created  1/1")

	// One cluster alone, and none.
	green := f.commit("green", map[string]string{"clusters/green/common.tfvars": "size = 2\n"})
	second := f.triggerFleet("push", all, "")
	f.expectJobs("a change of green", second, map[string]string{"changed": "success",
		"begin-production": "success", "wave-production green/proxmox self-hosted": "success",
		"summary": "success"})
	f.contains(second.logs["wave-production green/proxmox self-hosted"], "1 ready in")
	f.expectJobs("no change", f.triggerFleet("push", green, ""), map[string]string{"changed": "success",
		"summary": "success"})

	// The canary fails: no other wave begins. GitLab stops there, too.
	f.commit("burning", map[string]string{"clusters/common.tfvars": "size = 3\n",
		"clusters/blue/proxmox/cluster.hcl": files["clusters/blue/proxmox/cluster.hcl"] +
			"stage \"burning\" { source = \"networking/burning\" }\n"})
	third := f.triggerFleet("push", green, "")
	f.expectJobs("a failure", third, map[string]string{"changed": "success",
		"wave-staging-canary blue/proxmox rome": "failure", "summary": "success"})
	f.contains(third.summary["summary"], "blue/proxmox   failed", "green/proxmox  created")
	f.expectJobs("a failure on GitLab", f.gitlabFleet(green), map[string]string{"changed clusters": "success",
		"staging-canary blue/proxmox rome": "failure", "summary": "success"})

	// What is repaired goes on in the order of the waves.
	f.commit("repaired", map[string]string{
		"stages/networking/burning/fake.json": files["stages/networking/pool/fake.json"]})
	f.expectJobs("repaired on GitLab", f.gitlabFleet(green), map[string]string{"changed clusters": "success",
		"staging-canary blue/proxmox rome": "success", "staging red/proxmox milan": "success",
		"production: approve": "success", "production: pause": "success",
		"production green/proxmox castle": "success", "summary": "success"})
	again := f.triggerFleet("push", green, "")
	f.contains(again.logs["wave-staging-canary blue/proxmox rome"], "2 up to date")

	// A machine is lost in the middle of an apply. The same pipeline completes it on another one.
	before := f.git("rev-parse", "HEAD")
	f.commit("slow", map[string]string{"stages/networking/slow/stage.hcl": "stage {}\n",
		"stages/networking/slow/main.tf": "", "stages/networking/slow/fake.json": `{"waits": ["apply"],
			"resources": {"terraform_data.slow": ""}}`,
		"clusters/red/proxmox/cluster.hcl": files["clusters/red/proxmox/cluster.hcl"] +
			"stage \"slow\" { source = \"networking/slow\" }\n"})
	const red = "wave-staging-canary red/proxmox milan"
	f.started = f.loseApply
	f.expectJobs("a lost machine", f.triggerFleet("push", before, ""), map[string]string{
		"changed": "success", red: "failure", "summary": "success"})
	f.started = func(*exec.Cmd) { must(t, os.WriteFile(f.path("home", "go"), nil, 0o600)) }
	resumed := f.triggerFleet("push", before, "")
	f.expectJobs("the same jobs", resumed, map[string]string{"changed": "success", red: "success",
		"summary": "success"})
	f.contains(resumed.summary["summary"], "red/proxmox    created  2/2")
}

// loseApply kills all processes of a machine whose Terraform waits in an apply.
func (f *forge) loseApply(script *exec.Cmd) {
	text, err := os.ReadFile(script.Args[len(script.Args)-1])
	must(f.t, err)
	if !bytes.Contains(text, []byte("castle create")) {
		return
	}
	must(f.t, syscall.Mkfifo(f.path("home", "go"), 0o600))
	waits := func() bool {
		_, err := os.Stat(f.path("home", "waiting"))
		return err == nil
	}
	if !eventually(time.Minute, 20*time.Millisecond, waits) {
		f.t.Fatal("no apply waits")
	}
	must(f.t, syscall.Kill(-script.Process.Pid, syscall.SIGKILL))
	home := []byte("HOME=" + f.path("home") + "\x00")
	gone := func() bool { // the machine's own processes alone have its home
		found := false
		dirs, err := filepath.Glob("/proc/[0-9]*")
		must(f.t, err)
		for _, dir := range dirs {
			environ, err := os.ReadFile(filepath.Join(dir, "environ"))
			pid, none := strconv.Atoi(filepath.Base(dir))
			if err == nil && none == nil && bytes.Contains(environ, home) {
				syscall.Kill(pid, syscall.SIGKILL) //nolint:errcheck // it may have ended
				found = true
			}
		}
		return !found
	}
	if !eventually(time.Minute, 20*time.Millisecond, gone) {
		f.t.Fatal("the machine's processes do not end")
	}
}

// newFleetForge makes a Git repository with a store.
func newFleetForge(t *testing.T) *forge {
	t.Helper()
	f := &forge{t: t, folder: t.TempDir(), secrets: map[string]string{}}
	f.repository = filepath.Join(f.folder, "repository")
	identity, err := age.GenerateX25519Identity()
	must(t, err)
	must(t, os.MkdirAll(f.repository, 0o755))
	must(t, os.Mkdir(filepath.Join(f.folder, "store"), 0o700))
	f.git("init", "-q", "-b", "main")
	f.write(map[string]string{"castle.hcl": fmt.Sprintf("state {\n  store = \"file://%s/store\"\n%s}\n",
		f.folder, encryption(identity))})
	f.castle("init")
	f.secrets["secrets.CASTLE_AGE_IDENTITY"] = identity.String()
	return f
}

func (f *forge) castle(args ...string) {
	f.t.Helper()
	f.run("castle", args...)
}

func (f *forge) git(args ...string) string {
	f.t.Helper()
	return f.run("git", append([]string{"-c", "user.name=me", "-c", "user.email=me@example.com"}, args...)...)
}

func (f *forge) run(program string, args ...string) string {
	f.t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Dir = f.repository
	out, err := cmd.CombinedOutput()
	if err != nil {
		f.t.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

func (f *forge) write(files map[string]string) {
	f.t.Helper()
	for name, text := range files {
		path := filepath.Join(f.repository, name)
		must(f.t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(f.t, os.WriteFile(path, []byte(text), 0o644))
	}
}

// commit commits files, and everything else that is there, and returns the commit.
func (f *forge) commit(message string, files map[string]string) string {
	f.t.Helper()
	f.write(files)
	f.git("add", "-A")
	f.git("commit", "-q", "-m", message)
	return f.git("rev-parse", "HEAD")
}

// expectJobs asserts which jobs have run, each leg of a matrix by its cluster and its runner, and how. The
// others were skipped. No log shows a secret.
func (f *forge) expectJobs(title string, r *forgeRun, want map[string]string) {
	f.t.Helper()
	if !maps.Equal(r.results, want) {
		f.t.Fatalf("%s: %v\nwant %v", title, r.results, want)
	}
	for id := range r.results {
		if strings.Contains(r.logs[id]+r.summary[id], f.secrets["secrets.CASTLE_AGE_IDENTITY"]) {
			f.t.Fatalf("%s: %s shows the identity", title, id)
		}
	}
}

var prefixed = regexp.MustCompile(`(secrets|vars)\[format\('\{0\}(\w+)', matrix\.prefix\)\]`)

// triggerFleet runs the jobs of castle-fleet.yml that an event starts, each when those that it needs have
// ended.
func (f *forge) triggerFleet(event, since, fork string) *forgeRun {
	f.t.Helper()
	f.runs++
	r := &forgeRun{id: fmt.Sprint(2000 + f.runs), results: map[string]string{}, logs: map[string]string{},
		summary: map[string]string{}, names: maps.Clone(f.secrets)}
	maps.Copy(r.names, map[string]string{"github.event_name": event, "github.ref_name": "main",
		"github.repository": "me/castles", "github.run_id": r.id, "github.event.before": since,
		"github.event.pull_request.base.sha": since, "github.event.pull_request.head.repo.full_name": fork})
	if event == "pull_request" {
		r.names["github.ref_name"] = "1/merge"
	}
	text, err := os.ReadFile(filepath.Join(f.repository, ".github/workflows/castle-fleet.yml"))
	must(f.t, err)
	var w struct{ Jobs map[string]*fleetJob }
	must(f.t, yaml.Unmarshal(text, &w))
	ended := map[string]string{}
	for len(ended) < len(w.Jobs) {
		before := len(ended)
		for _, id := range slices.Sorted(maps.Keys(w.Jobs)) {
			waits := func(need string) bool { return ended[need] == "" }
			if ended[id] == "" && !slices.ContainsFunc(w.Jobs[id].Needs, waits) {
				ended[id] = f.fleetJob(r, id, w.Jobs[id], ended)
				r.names["needs."+id+".result"] = ended[id]
			}
		}
		if len(ended) == before {
			f.t.Fatalf("jobs wait for each other: %v", ended)
		}
	}
	return r
}

// fleetJob runs a job, or each leg of its matrix.
func (f *forge) fleetJob(r *forgeRun, id string, job *fleetJob, ended map[string]string) string {
	failed := slices.ContainsFunc(job.Needs, func(need string) bool { return ended[need] == "failure" })
	all := slices.ContainsFunc(job.Needs, func(need string) bool { return ended[need] != "success" })
	if all && !strings.Contains(job.If, "cancelled()") || !isTrue(evaluate(job.If, r.names, failed)) {
		return "skipped"
	}
	legs := []map[string]string{nil}
	if matrix := job.Strategy.Matrix.Include; matrix != "" {
		name := strings.TrimSuffix(strings.TrimPrefix(matrix, "${{ fromJSON("), ") }}")
		must(f.t, json.Unmarshal([]byte(r.names[name]), &legs))
	}
	result := "success"
	for _, leg := range legs {
		title := strings.TrimSpace(id + " " + leg["cluster"] + " " + leg["runner"])
		own := &workflowJob{Steps: job.Steps, Outputs: job.Outputs, Env: map[string]string{}}
		for name, value := range job.Env {
			own.Env[name] = prefixed.ReplaceAllString(value, "$1."+leg["prefix"]+"$2")
		}
		for key, value := range leg {
			r.names["matrix."+key] = value
		}
		r.results[title] = f.job(r, title, own)
		for name := range own.Outputs { // of a job without legs
			r.names["needs."+id+".outputs."+name] = r.names["needs."+title+".outputs."+name]
		}
		if r.results[title] != "success" {
			result = "failure"
		}
	}
	return result
}

// gitlabFleet runs the pipeline of GitLab for a push, with the pipeline of its own that it makes.
func (f *forge) gitlabFleet(since string) *forgeRun {
	f.t.Helper()
	r := &forgeRun{results: map[string]string{}, logs: map[string]string{}, summary: map[string]string{}}
	text, err := os.ReadFile(filepath.Join(f.repository, ".gitlab-ci.yml"))
	must(f.t, err)
	f.gitlabJob(r, text, "changed clusters", map[string]string{"CI_COMMIT_BEFORE_SHA": since})
	child, err := os.ReadFile(f.path("castles/castles", "castle-fleet.yml"))
	must(f.t, err)
	var stages struct{ Stages []string }
	must(f.t, yaml.Unmarshal([]byte(strings.ReplaceAll(string(child), "!reference ", "")), &stages))
	jobs := f.gitlabJobs(child)
	failed := false
	for _, stage := range stages.Stages {
		for _, title := range slices.Sorted(maps.Keys(jobs)) {
			job := jobs[title]
			if job.Stage != stage || len(job.Rules) == 0 {
				continue
			}
			push := job.Rules[0].If == "" || strings.Contains(job.Rules[0].If, `"push"`)
			if !push || failed && job.Rules[0].When != "always" {
				continue
			}
			legs := append([]map[string]string{}, job.Parallel.Matrix...)
			if len(legs) == 0 {
				legs = append(legs, nil)
			}
			for _, leg := range legs {
				failed = f.gitlabJob(r, child, title, leg) != "success" || failed
			}
		}
	}
	return r
}

// gitlabFleetJob is what the runner reads of a job of castle-fleet.yml.
type gitlabFleetJob struct {
	Extends      string
	Stage        string
	BeforeScript []any `json:"before_script"`
	Script       []any
	Rules        []struct{ If, When string }
	Parallel     struct{ Matrix []map[string]string }
}

func (f *forge) gitlabJobs(text []byte) map[string]gitlabFleetJob {
	f.t.Helper()
	raw, jobs := map[string]any{}, map[string]gitlabFleetJob{}
	must(f.t, yaml.Unmarshal([]byte(strings.ReplaceAll(string(text), "!reference ", "")), &raw))
	for name, one := range raw {
		if name == "stages" || name == "workflow" {
			continue
		}
		data, err := json.Marshal(one)
		must(f.t, err)
		var job gitlabFleetJob
		must(f.t, json.Unmarshal(data, &job))
		jobs[name] = job
	}
	return jobs
}

// gitlabJob runs a job on a new machine.
func (f *forge) gitlabJob(r *forgeRun, text []byte, name string, more map[string]string) string {
	f.t.Helper()
	jobs := f.gitlabJobs(text)
	var script []string
	for base := jobs[name]; ; base = jobs[base.Extends] {
		script = append(scriptLines(base.BeforeScript), script...)
		if base.Extends == "" {
			break
		}
	}
	f.newMachine()
	project := f.path("castles/castles")
	must(f.t, os.CopyFS(project, os.DirFS(f.repository)))
	env := f.environ()
	maps.DeleteFunc(env, func(name, _ string) bool {
		return strings.HasPrefix(name, "GITHUB_") && name != "GITHUB_WORKSPACE"
	})
	for secret, value := range f.secrets {
		env[strings.TrimPrefix(secret, "secrets.")] = value
	}
	maps.Copy(env, map[string]string{"CI_PROJECT_DIR": project, "CI_PROJECT_PATH": "me/castles",
		"GITLAB_CI": "true"})
	maps.Copy(env, more)
	var log bytes.Buffer
	title, result := strings.TrimSpace(name+" "+more["CLUSTER"]+" "+more["RUNNER"]), "success"
	script = append(script, scriptLines(jobs[name].Script)...)
	if f.script("gitlab", strings.Join(script, "\n"), env, &log) != nil {
		result = "failure"
	}
	r.results[title], r.logs[title] = result, log.String()
	f.t.Logf("%s: %s\n%s", title, result, &log)
	return result
}
