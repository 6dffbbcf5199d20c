package scaffold

import (
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// pipelines are those that differ in what a template writes.
func pipelines() map[string]Pipeline {
	blue := PipelineCluster{Name: "blue/proxmox", Reference: "blue",
		Providers: []string{"infisical", "proxmox"}}
	green := PipelineCluster{Name: "green/metal", Reference: "green/metal", Providers: []string{"vault"},
		SecretsFile: true}
	one := Pipeline{Version: "v1.2.3", Command: "castle ci github", Clusters: []PipelineCluster{blue},
		Branch: "main", Store: "s3://castle/homelab"}
	several := one
	several.Clusters = []PipelineCluster{blue, green}
	several.Version, several.Store, several.StoreVariable = "4db9035", "s3://castle", true
	several.Secrets = []string{"NOTIFY_TOKEN"}
	development := one
	development.Version, development.Store = "4db9035-dirty", "file:///srv/castle"
	return map[string]Pipeline{"one cluster": one, "several": several, "a development build": development}
}

// written writes a pipeline into a new repository, in a folder of its Git repository, and returns the file.
func written(t *testing.T, system int, p Pipeline, folder string) string {
	t.Helper()
	root := t.TempDir()
	p.Repository = filepath.Join(root, folder)
	err := errors.Join(os.MkdirAll(p.Repository, 0o755), os.Mkdir(filepath.Join(root, ".git"), 0o755))
	if err != nil {
		t.Fatal(err)
	}
	s := PipelineSystems()[system]
	f, err := WritePipeline(s, p)
	if err != nil {
		t.Fatal(err)
	}
	path := s.Path
	if p.Fleet != nil {
		path = s.FleetPath
	}
	if want := filepath.Join(root, path); f.Path != want {
		t.Fatalf("wrote %s, want %s", f.Path, want)
	}
	return f.Path
}

const actionlint = "github.com/rhysd/actionlint/cmd/actionlint@v1.7.12"

func TestWorkflowsPassActionlint(t *testing.T) {
	args := []string{"run", actionlint, "-no-color", "-shellcheck=", "-pyflakes="}
	for _, p := range pipelines() {
		args = append(args, written(t, 0, p, "."), written(t, 0, p, "castle/home lab"))
		p.Fleet = someFleet()
		args = append(args, written(t, 0, p, "."), written(t, 0, p, "castle/home lab"))
	}
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// workflow is a part of what GitHub reads.
type workflow struct {
	Permissions map[string]string
	On          map[string]any
	Jobs        map[string]struct {
		If          string
		Permissions map[string]string
		Env         map[string]string
		Environment string
		Concurrency struct {
			Group            string
			CancelInProgress *bool `json:"cancel-in-progress"`
		}
		Steps []struct{ Uses, Run string }
	}
}

func parse(t *testing.T, path string, into any) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err == nil {
		// A key that YAML 1.1 reads as true.
		err = yaml.Unmarshal([]byte(strings.Replace(string(text), "\non:\n", "\n\"on\":\n", 1)), into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// What a workflow may do is limited: a fork's code, or a job that was cancelled, could do harm.
func TestWorkflowsMayDoLittle(t *testing.T) {
	for name, p := range pipelines() {
		var w workflow
		parse(t, written(t, 0, p, "."), &w)
		if !maps.Equal(w.Permissions, map[string]string{"contents": "read"}) {
			t.Errorf("%s: permissions %v", name, w.Permissions)
		}
		if _, has := w.On["pull_request_target"]; has {
			t.Errorf("%s: forks would get secrets", name)
		}
		if want := 4 * len(p.Clusters); len(w.Jobs) != want {
			t.Errorf("%s: %d jobs, want %d", name, len(w.Jobs), want)
		}
		for id, job := range w.Jobs {
			for scope, right := range job.Permissions {
				if right != "read" {
					t.Errorf("%s: %s: %s: %s", name, id, scope, right)
				}
			}
			if c := job.Concurrency; c.CancelInProgress == nil || *c.CancelInProgress ||
				!strings.HasPrefix(c.Group, "castle-") {
				t.Errorf("%s: %s: concurrency %+v", name, id, c)
			}
			if strings.Contains(job.If, "pull_request'") && !strings.Contains(job.If, "!= 'pull_request'") &&
				!strings.Contains(job.If, "head.repo.full_name == github.repository") {
				t.Errorf("%s: %s: a fork's pull request would run: %s", name, id, job.If)
			}
			if changes := !strings.HasPrefix(id, "plan-") && !strings.HasPrefix(id, "nightly-"); changes !=
				(job.Environment != "") {
				t.Errorf("%s: %s: environment %q", name, id, job.Environment)
			}
			for _, step := range job.Steps {
				if strings.Contains(step.Run, "${{") {
					t.Errorf("%s: %s: an expression in a script: %s", name, id, step.Run)
				}
				if _, version, _ := strings.Cut(step.Uses, "@"); step.Uses != "" && len(version) != 40 {
					t.Errorf("%s: %s: not a commit: %s", name, id, step.Uses)
				}
			}
		}
	}
}

func TestSecretsOfAPipeline(t *testing.T) {
	all := pipelines()
	var w workflow
	parse(t, written(t, 0, all["one cluster"], "."), &w)
	env := w.Jobs["create-blue-proxmox"].Env
	want := []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "CASTLE_AGE_IDENTITY",
		"CASTLE_STATE_AT_LEAST", "INFISICAL_UNIVERSAL_AUTH_CLIENT_ID",
		"INFISICAL_UNIVERSAL_AUTH_CLIENT_SECRET", "PROXMOX_VE_API_TOKEN"}
	if got := slices.Sorted(maps.Keys(env)); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := env["CASTLE_STATE_AT_LEAST"]; got != "${{ vars.CASTLE_STATE_AT_LEAST }}" {
		t.Errorf("got %s", got)
	}
	if got := env["AWS_ACCESS_KEY_ID"]; got != "${{ secrets.AWS_ACCESS_KEY_ID }}" {
		t.Errorf("got %s", got)
	}

	w = workflow{}
	parse(t, written(t, 0, all["several"], "."), &w)
	env = w.Jobs["plan-green-metal"].Env
	for name, value := range map[string]string{
		"VAULT_TOKEN":        "${{ secrets.GREEN_METAL_VAULT_TOKEN || secrets.VAULT_TOKEN }}",
		"NOTIFY_TOKEN":       "${{ secrets.GREEN_METAL_NOTIFY_TOKEN || secrets.NOTIFY_TOKEN }}",
		"SECRETS_TFVARS":     "${{ secrets.GREEN_METAL_SECRETS_TFVARS || secrets.SECRETS_TFVARS }}",
		"CASTLE_STATE_STORE": "${{ vars.CASTLE_STATE_STORE }}",
		// Commits have other numbers in each cluster.
		"CASTLE_STATE_AT_LEAST": "${{ vars.GREEN_METAL_CASTLE_STATE_AT_LEAST }}",
	} {
		if env[name] != value {
			t.Errorf("%s: got %q, want %q", name, env[name], value)
		}
	}
}

// gitlabRule is a rule of a job of GitLab.
type gitlabRule struct {
	If           string
	When         string
	AllowFailure bool `json:"allow_failure"`
}

// gitlabJob is a part of what GitLab reads.
type gitlabJob struct {
	Extends       string
	Stage         string
	Needs         []string
	ResourceGroup string `json:"resource_group"`
	Interruptible *bool
	Rules         []gitlabRule
	Script        []any
	Environment   struct{ Name, Action string }
	Artifacts     struct{ Paths []string }
}

func TestGitLabJobs(t *testing.T) {
	for name, p := range pipelines() {
		text, err := os.ReadFile(written(t, 1, p, "castle"))
		if err != nil {
			t.Fatal(err)
		}
		all := map[string]gitlabJob{}
		plain := strings.ReplaceAll(string(text), "!reference ", "") // it is GitLab's own
		if err := yaml.Unmarshal([]byte(plain), &all); err != nil {
			t.Fatal(err)
		}
		if i := all[".castle"].Interruptible; i == nil || *i {
			t.Errorf("%s: a newer pipeline may cancel a job", name)
		}
		for title, job := range all {
			if strings.HasPrefix(title, ".") {
				continue
			}
			reference, what, _ := strings.Cut(title, ": ")
			named := func(c PipelineCluster) bool { return c.Reference == reference }
			at := slices.IndexFunc(p.Clusters, named)
			if at < 0 {
				t.Fatalf("%s: job %s", name, title)
			}
			base := all[job.Extends]
			if base.Extends != ".castle" || base.ResourceGroup != p.Clusters[at].Name {
				t.Errorf("%s: %s does not wait for the cluster's other jobs: %+v", name, title, base)
			}
			if !slices.Contains([]string{"test", "deploy"}, job.Stage) { // those that every pipeline has
				t.Errorf("%s: %s: stage %s", name, title, job.Stage)
			}
			for _, need := range job.Needs {
				if _, is := all[need]; !is {
					t.Errorf("%s: %s needs %s", name, title, need)
				}
			}
			if len(job.Rules) == 0 || len(job.Script) == 0 {
				t.Errorf("%s: %s: rules %v, script %v", name, title, job.Rules, job.Script)
			}
			manual := slices.Contains([]string{"create with losses", "destroy", "recreate"}, what)
			for _, r := range job.Rules {
				if (r.When == "manual") != manual || manual != r.AllowFailure {
					t.Errorf("%s: %s: %+v", name, title, r)
				}
				if strings.Contains(r.If, "merge_request_event") && (what != "plan" ||
					!strings.Contains(r.If, "$CI_MERGE_REQUEST_SOURCE_PROJECT_ID == $CI_PROJECT_ID")) {
					t.Errorf("%s: %s runs for a merge request: %s", name, title, r.If)
				}
			}
		}
		if want := len(p.Clusters)*7 + 1; len(all) != want { // each with its hidden one
			t.Errorf("%s: %d jobs, want %d", name, len(all), want)
		}
	}
}

// The checkout's folder and the clusters have names that somebody else may have chosen.
func TestShellLinesQuoteNames(t *testing.T) {
	p := pipelines()["several"]
	const evil, folder = "a;id>pwn/metal", "it's $(id): # `x`"
	p.Clusters[1].Name, p.Clusters[1].Reference = evil, evil
	var jobs map[string]struct {
		Before []any    `json:"before_script"`
		After  []string `json:"after_script"`
		Script []string `json:"script"`
	}
	parse(t, written(t, 1, p, folder), &jobs)
	quoted := `it'\''s $(id): # ` + "`x`"
	if got := jobs[".castle"].Before[0]; got != "cd '"+quoted+"'" {
		t.Errorf("enters the folder with %s", got)
	}
	want := `rm -f "$CI_PROJECT_DIR"/'` + quoted + "/clusters/" + evil + "/secrets.tfvars'"
	if got := jobs[".a;id>pwn-metal"].After; len(got) != 1 || got[0] != want {
		t.Errorf("removes secrets with %q, want %s", got, want)
	}
	if got := jobs[evil+": plan"].Script[0]; got != "castle check '"+evil+"'" {
		t.Errorf("checks with %s", got)
	}
}

func TestInstallableVersions(t *testing.T) {
	for version, want := range map[string][2]string{
		"v1.2.3":             {"v1.2.3", `"castle v1.2.3 "*|"castle 1.2.3 "*`},
		"1.2.3":              {"v1.2.3", `"castle v1.2.3 "*|"castle 1.2.3 "*`},
		"v1.2.3-rc.1":        {"v1.2.3-rc.1", `"castle v1.2.3-rc.1 "*|"castle 1.2.3-rc.1 "*`},
		"4db9035":            {"4db9035", `"castle "*4db9035*`},
		"4db903511357":       {"4db903511357", `"castle "*4db9035*`},
		"v1.2.3-14-g4db9035": {"4db9035", `"castle "*4db9035*`},
		"v1.2.3-dirty":       {}, "4db9035-dirty": {}, "development": {}, "": {},
	} {
		install, pattern := installable(version)
		if install != want[0] || pattern != want[1] {
			t.Errorf("%q: got %q, %q; want %q", version, install, pattern, want)
		}
	}
}

func TestPipelineReplacesItsOwnFileOnly(t *testing.T) {
	p, s := pipelines()["one cluster"], PipelineSystems()[1]
	p.Repository = t.TempDir()
	path := filepath.Join(p.Repository, s.Path)
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	attempt := func() (*PipelineFile, *OwnerError) {
		t.Helper()
		f, err := WritePipeline(s, p)
		foreign, is := errors.AsType[*OwnerError](err)
		if err != nil && !is {
			t.Fatal(err)
		}
		return f, foreign
	}
	if _, refused := attempt(); refused != nil {
		t.Fatal(refused)
	}
	if f, _ := attempt(); !f.Unchanged {
		t.Error("it was written twice")
	}
	p.Version = "v1.3.0"
	if f, refused := attempt(); refused != nil || f.Unchanged {
		t.Errorf("its own older file stays: %v", refused)
	}
	text, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(text), "@v1.3.0\n") {
		t.Fatalf("%v\n%s", err, text)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("%v, %v", info.Mode(), err)
	}

	changed := strings.Replace(string(text), "timeout: 1h", "timeout: 2h", 1)
	write(changed)
	p.Branch = "trunk"
	if _, refused := attempt(); refused == nil || !refused.Changed {
		t.Errorf("a changed file was overwritten: %v", refused)
	}
	p.Force = true
	if _, refused := attempt(); refused != nil {
		t.Errorf("--force does not replace it: %v", refused)
	}

	const theirs = "# Written by castle\nstages: [test]\n"
	write(theirs)
	if _, refused := attempt(); refused == nil || refused.Changed {
		t.Errorf("--force replaced somebody else's file: %v", refused)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != theirs {
		t.Errorf("%v\n%s", err, text)
	}
	p.Path = "ci/castle.yml"
	if f, refused := attempt(); refused != nil || f.Path != filepath.Join(p.Repository, "ci/castle.yml") {
		t.Errorf("%v, %v", f, refused)
	}
	p.Path = "../castle.yml"
	if _, err := WritePipeline(s, p); err == nil || !strings.Contains(err.Error(), "--file ../castle.yml") {
		t.Errorf("got %v", err)
	}
}
