//go:build integration

package main

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

// gitlabJob is what the runner reads of a job of GitLab.
type gitlabJob struct {
	Extends      string
	BeforeScript []any `json:"before_script"`
	Script       []any
	Artifacts    struct {
		Paths   []string
		Reports struct{ Dotenv string }
	}
}

// scriptLines returns the lines of a script; a reference to another one is a list.
func scriptLines(script []any) (all []string) {
	for _, one := range script {
		if line, is := one.(string); is {
			all = append(all, line)
		}
	}
	return all
}

// gitlab runs a job of .gitlab-ci.yml on a new machine, with the files that the jobs before it have kept, and
// returns its log.
func (f *forge) gitlab(title string, more map[string]string) (log string, err error) {
	f.t.Helper()
	text, err := os.ReadFile(filepath.Join(f.repository, ".gitlab-ci.yml"))
	must(f.t, err)
	jobs := map[string]gitlabJob{}
	must(f.t, yaml.Unmarshal([]byte(strings.ReplaceAll(string(text), "!reference ", "")), &jobs))
	job, is := jobs[title]
	if !is {
		f.t.Fatalf("no job %s", title)
	}
	var script []string
	for base := job; ; base = jobs[base.Extends] {
		script = append(scriptLines(base.BeforeScript), script...)
		if base.Extends == "" {
			break
		}
	}
	f.newMachine()
	project := f.path("castles/castles")
	must(f.t, os.CopyFS(project, os.DirFS(f.repository)))
	kept := f.artifact("gitlab")
	must(f.t, os.MkdirAll(kept, 0o755))
	must(f.t, os.CopyFS(project, os.DirFS(kept)))
	env := f.environ()
	for name, value := range f.secrets {
		env[strings.TrimPrefix(name, "secrets.")] = value
	}
	maps.Copy(env, map[string]string{"CI_PROJECT_DIR": project, "CI_PROJECT_PATH": "me/castles"})
	variables, err := os.ReadFile(f.artifact("gitlab.env"))
	if err != nil && !os.IsNotExist(err) {
		f.t.Fatal(err)
	}
	for line := range strings.Lines(string(variables)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		env[name] = value
	}
	maps.Copy(env, more)
	var out bytes.Buffer
	err = f.script("gitlab", strings.Join(append(script, scriptLines(job.Script)...), "\n"), env, &out)
	if err == nil {
		for _, path := range job.Artifacts.Paths {
			must(f.t, move(filepath.Join(project, path), filepath.Join(kept, path)))
		}
		if file := job.Artifacts.Reports.Dotenv; file != "" {
			must(f.t, move(filepath.Join(project, file), f.artifact("gitlab.env")))
		}
	}
	f.t.Logf("%s\n%s", title, &out)
	for name, value := range f.secrets {
		if bytes.Contains(out.Bytes(), []byte(value)) {
			f.t.Fatalf("%s shows %s", title, name)
		}
	}
	return out.String(), err
}
