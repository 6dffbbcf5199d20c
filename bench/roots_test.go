package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ephemeral-castle/castle/internal/cli"
)

var vmID = regexp.MustCompile(`vm_id = (\d+), address = "([0-9.]+)"`)

// all are the units of each kind of roots.
func all() map[string][]unit {
	return map[string][]unit{rootsPlugins: build(1, plugged), rootsCluster: build(1, clustered),
		rootsData: build(1, remembered), rootsWide: build(50, remembered)}
}

func TestToolsGetTheSameModules(t *testing.T) {
	for name, units := range all() {
		castle, shell, terragrunt := castleTree(units), shellTree(units, 4), terragruntTree(units)
		for _, u := range units {
			module := castle["stages/"+u.folder()+"/main.tf"]
			if module == "" || module != shell[u.folder()+"/main.tf"] ||
				module != terragrunt[u.folder()+"/main.tf"] {
				t.Errorf("%s: %s differs:\n%s\n%s\n%s", name, u.folder(), module,
					shell[u.folder()+"/main.tf"], terragrunt[u.folder()+"/main.tf"])
			}
			value := castle[castleValues]
			if u.layer == changedLayer && (value != shell[u.folder()+"/"+values] ||
				value != terragrunt[u.folder()+"/"+values]) {
				t.Errorf("%s: %s has other values", name, u.folder())
			}
		}
	}
}

func TestToolsGetTheSameEdges(t *testing.T) {
	for name, units := range all() {
		castle, shell, terragrunt := castleTree(units), shellTree(units, 4), terragruntTree(units)
		for _, u := range units {
			for _, need := range u.needs {
				from := find(units, need)
				for _, wired := range []struct{ text, want string }{
					{castle["stages/"+u.folder()+"/stage.hcl"],
						fmt.Sprintf("%s = %s.%[1]s\n", from.output(), from.layer)},
					{terragrunt[u.folder()+"/terragrunt.hcl"],
						fmt.Sprintf("%s = dependency.%s.outputs.%[1]s\n", from.output(), need)},
					{shell[u.folder()+"/run.sh"],
						fmt.Sprintf("TF_VAR_%s=$(cat ../../%s/value)\n", from.output(), from.folder())},
					{shell[from.folder()+"/run.sh"], "output -raw " + from.output() + " > value\n"},
				} {
					if !strings.Contains(wired.text, wired.want) {
						t.Errorf("%s: %s lacks %q:\n%s", name, u.folder(), wired.want, wired.text)
					}
				}
			}
		}
	}
}

func TestTheScriptRunsAChainAndThenTheLastLayer(t *testing.T) {
	want := `#!/bin/sh
set -eu
secrets/seed/run.sh apply
platform/machines/run.sh apply
engine/access/run.sh apply
printf '%s\n' networking/pool storage/volume gitops/sync | xargs -P "${PARALLEL:-4}" -I {} sh {}/run.sh apply
`
	tree := shellTree(build(1, remembered), 4)
	if got := tree["up.sh"]; got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	down := strings.Split(tree["down.sh"], "\n")
	if last := "secrets/seed/run.sh destroy"; down[len(down)-2] != last {
		t.Errorf("down.sh does not end with %q: %q", last, down)
	}
}

func TestFiftyCopiesAreThreeHundredUnits(t *testing.T) {
	var outputs []string
	units := build(50, remembered)
	for _, u := range units {
		outputs = append(outputs, u.output())
	}
	slices.Sort(outputs)
	if n := len(slices.Compact(outputs)); n != 300 || len(units) != 300 {
		t.Errorf("%d units with %d outputs, want 300", len(units), n)
	}
}

// check runs castle check in a repository.
func check(t *testing.T, repository tree) {
	t.Helper()
	dir := t.TempDir()
	if err := repository.write(dir); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	args := []string{"check", "-C", dir, "--state-dir", filepath.Join(t.TempDir(), "state")}
	if code := cli.Main("test", args, os.Stdin, &out, &out); code != 0 {
		t.Errorf("castle check: exit code %d\n%s", code, out.String())
	}
}

func TestCastleAcceptsTheRoots(t *testing.T) {
	t.Setenv("TF_VAR_proxmox_endpoint", "https://127.0.0.1:8006")
	t.Setenv("TF_VAR_proxmox_api_token", proxmoxToken)
	t.Setenv("TF_VAR_infisical_host", "https://127.0.0.1:8007")
	units := build(1, plugged)
	for i := range units {
		units[i].castle = strings.ReplaceAll(gates[units[i].layer], "CA_FILE", "/ca.pem")
	}
	check(t, castleTree(units))
	check(t, castleTree(build(2, remembered)))
	t.Setenv("TF_VAR_cluster_access", "a kubeconfig")
	inside := build(1, clustered)
	inside[1].ends = true
	check(t, castleTree(inside))
}

func TestGeneratedClustersShareNothing(t *testing.T) {
	t.Chdir("..")
	like, err := readCluster(likeCluster)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	generated := clusters(like, manyClusters)
	for name, content := range generated {
		for _, machine := range vmID.FindAllStringSubmatch(content, -1) {
			if seen[machine[1]] || seen[machine[2]] {
				t.Errorf("%s: %s at %s is of another cluster, too", name, machine[1], machine[2])
			}
			seen[machine[1]], seen[machine[2]] = true, true
		}
	}
	if len(seen) < 2*manyClusters || len(generated) != 2*manyClusters {
		t.Errorf("%d ids and addresses in %d files of %d clusters", len(seen), len(generated), manyClusters)
	}
	check(t, clusters(like, 2))
}
