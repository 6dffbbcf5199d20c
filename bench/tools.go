package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	castleTool     = "castle"
	shellTool      = "shell"
	terragruntTool = "terragrunt"

	clusterName   = "bench"
	castleCluster = "clusters/" + clusterName + "/local"
	values        = "terraform.tfvars"
	castleValues  = castleCluster + "/" + values
	stateFile     = "terraform.tfstate"
)

// A tool creates, changes and destroys the same roots in its own way. Each has its own home and files.
type tool struct {
	name    string
	dir     string   // its roots
	home    string   // $HOME: caches, and castle's state
	env     []string // complete
	create  []string // also of what is unchanged, or changed
	destroy []string
	warm    []string // creates one root after the other: Terraform's plugin cache is not safe for two at once
	values  string   // the file with the variable that changes, below dir
	states  string   // pattern of the states, absolute
}

// programs are the absolute paths of what is measured.
type programs struct{ castle, terraform, terragrunt string }

// newTools writes the roots of each tool below dir. extra is the environment that all of them get.
func newTools(dir string, all []unit, p programs, parallel int, extra []string) ([]tool, error) {
	trees := map[string]tree{
		castleTool: castleTree(all), shellTool: shellTree(all, parallel), terragruntTool: terragruntTree(all),
	}
	n := fmt.Sprint(parallel)
	castle := func(args ...string) []string {
		return append([]string{p.castle, "--parallelism", n}, args...)
	}
	terragrunt := func(n string, args ...string) []string {
		return append([]string{p.terragrunt, "run", "--all", "--non-interactive", "--no-color",
			"--parallelism", n, "--"}, args...)
	}
	tools := []tool{
		{name: castleTool, create: castle("create", clusterName, "--yes"), values: castleValues,
			destroy: castle("destroy", clusterName, "--yes"),
			warm:    []string{p.castle, "--parallelism", "1", "create", clusterName, "--yes"}},
		{name: shellTool, create: []string{"./up.sh"}, destroy: []string{"./down.sh"},
			warm: []string{"env", "PARALLEL=1", "./up.sh"}},
		{name: terragruntTool, create: terragrunt(n, "apply", "-auto-approve"),
			destroy: terragrunt(n, "destroy", "-auto-approve"),
			warm:    terragrunt("1", "apply", "-auto-approve")},
	}
	for i := range tools {
		t := &tools[i]
		t.dir, t.home = filepath.Join(dir, t.name, "roots"), filepath.Join(dir, t.name, "home")
		cache := filepath.Join(t.home, "plugins")
		t.env = append([]string{
			"PATH=" + filepath.Dir(p.terraform) + ":/usr/bin:/bin", "HOME=" + t.home,
			"TMPDIR=" + filepath.Join(dir, t.name),
			"CHECKPOINT_DISABLE=1", "TF_IN_AUTOMATION=1", "TF_INPUT=0", "LANG=C.UTF-8",
		}, extra...)
		t.states = filepath.Join(t.dir, "*", "*", stateFile)
		switch t.name {
		case castleTool: // has a plugin cache of its own
			t.states = filepath.Join(t.castleState(), clusterName, "*", "stages", "*", stateFile)
		case terragruntTool:
			t.env = append(t.env, "TG_TF_PATH="+p.terraform)
			t.states = filepath.Join(t.dir, "*", "*", ".terragrunt-cache", "*", "*", stateFile)
			fallthrough
		default:
			t.env = append(t.env, "TF_PLUGIN_CACHE_DIR="+cache)
			i := slices.IndexFunc(all, func(u unit) bool { return u.layer == changedLayer })
			t.values = all[i].folder() + "/" + values
		}
		if err := errors.Join(os.MkdirAll(cache, 0o700), trees[t.name].write(t.dir)); err != nil {
			return nil, err
		}
	}
	return tools, nil
}

func (t tool) castleState() string { return filepath.Join(t.home, ".local", "state", "castle") }

// reset makes everything as after a fresh clone on a machine with warm plugin caches: no states, no
// .terraform, but the lock files of the providers, which belong to the repository. It moves the last round
// aside instead of deleting it: a file system without a journal searches for an inode that was not deleted
// lately, and the tool that is measured next would pay for that.
func (t tool) reset() error {
	if err := t.setValues(sizeBefore); err != nil {
		return err
	}
	var last []string
	if t.name == castleTool {
		entries, err := os.ReadDir(t.castleState())
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for _, e := range entries {
			if !strings.HasPrefix(e.Name(), ".plugins") {
				last = append(last, filepath.Join(t.castleState(), e.Name()))
			}
		}
	} else {
		for _, name := range []string{".terraform", ".terragrunt-cache", "value", stateFile,
			stateFile + ".backup"} {
			found, err := filepath.Glob(filepath.Join(t.dir, "*", "*", name))
			if err != nil {
				return err
			}
			last = append(last, found...)
		}
	}
	return setAside(filepath.Dir(t.home), last)
}

// setAside moves files and folders to a new folder in dir, which the end of the bench deletes.
func setAside(dir string, paths []string) error {
	aside, err := os.MkdirTemp(dir, "aside")
	for n, path := range paths {
		if err == nil {
			err = os.Rename(path, filepath.Join(aside, fmt.Sprint(n)))
		}
	}
	return err
}

func (t tool) setValues(content string) error {
	return tree{t.values: content}.write(t.dir)
}

func (t tool) run(ctx context.Context, args []string) (measure, error) {
	m, _, err := run(ctx, t.dir, t.env, args...)
	if err != nil {
		return m, fmt.Errorf("%s: %w", t.name, err)
	}
	return m, nil
}

// resources counts the resources in each state, by the state's folder. The tools must end with the same.
func (t tool) resources() (map[string]int, error) {
	files, err := filepath.Glob(t.states)
	if err != nil {
		return nil, err
	}
	counts := map[string]int{}
	for _, f := range files {
		content, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		var state struct {
			Resources []struct {
				Mode      string
				Instances []any
			}
		}
		if err := json.Unmarshal(content, &state); err != nil {
			return nil, fmt.Errorf("%s: %w", f, err)
		}
		for _, r := range state.Resources {
			if r.Mode == "managed" {
				counts[t.unit(f)] += len(r.Instances)
			}
		}
	}
	return counts, nil
}

// unit is the name of the unit whose state a file is.
func (t tool) unit(file string) string {
	if rel, err := filepath.Rel(t.dir, file); err == nil && filepath.IsLocal(rel) {
		return strings.Split(filepath.ToSlash(rel), "/")[1] // LAYER/UNIT/…
	}
	return filepath.Base(filepath.Dir(file))
}

// created fails unless every unit has resources, as many as with the first tool that was asked.
func (t tool) created(all []unit, like map[string]int) error {
	counts, err := t.resources()
	if err != nil {
		return err
	}
	for _, u := range all {
		if counts[u.name] == 0 {
			return fmt.Errorf("%s has created nothing of %s", t.name, u.name)
		}
	}
	if len(like) == 0 {
		maps.Copy(like, counts)
	}
	if !maps.Equal(like, counts) {
		return fmt.Errorf("%s has created %v, another tool %v", t.name, counts, like)
	}
	return nil
}

// destroyed fails if a resource is left.
func (t tool) destroyed() error {
	counts, err := t.resources()
	if err == nil && len(counts) > 0 {
		err = fmt.Errorf("%s has left resources: %v", t.name, counts)
	}
	return err
}
