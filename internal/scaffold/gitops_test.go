package scaffold

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ephemeral-castle/castle/internal/gitops"
)

// withGitOps is a draft of green, with Flux's repository in a new folder beside.
func withGitOps(t *testing.T) (o *NewCluster, d *Draft, fleet string) {
	t.Helper()
	o = newCluster(t)
	fleet = filepath.Join(t.TempDir(), "deep", "fleet")
	if err := o.GitOps(fleet); err != nil {
		t.Fatal(err)
	}
	answerAll(t, o, given("192.0.2.0/24", "192.0.2.1"))
	d, err := o.Write()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return o, d, fleet
}

// TestFluxReadsTheSkeletonWithoutProblems proves that every folder and dependency of the skeleton exists.
func TestFluxReadsTheSkeletonWithoutProblems(t *testing.T) {
	_, d, fleet := withGitOps(t)
	if err := d.Place(); err != nil {
		t.Fatal(err)
	}
	r, err := gitops.Read(gitops.Options{Folder: fleet, Path: "./clusters/green",
		Variables: func(kind, namespace, name string) (map[string]string, bool) {
			return map[string]string{"traefik_lb_ip": "192.0.2.244", "cluster_name": "green"},
				kind+" "+namespace+"/"+name == "ConfigMap flux-system/cluster-vars"
		}})
	if err != nil {
		t.Fatal(err)
	}
	var order []string
	for _, k := range r {
		text := k.Key.Name
		for _, on := range k.DependsOn {
			text += " after " + on.Name
		}
		order = append(order, text)
		for _, o := range k.Objects {
			data, err := o.MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(data), "${") {
				t.Errorf("%s: a variable that castle does not set: %s", o.At, data)
			}
		}
		if k.Parent != nil && (!k.Wait || len(k.VariablesFrom) == 0) {
			t.Errorf("%s has no wait, or no variables", k.Key.Name)
		}
	}
	if got, want := strings.Join(order, "\n"), "flux-system\napps after "+
		"infrastructure-resources\ninfrastructure-controllers\ninfrastructure-resources after "+
		"infrastructure-controllers"; got != want {
		t.Errorf("got\n%s", got)
	}
}

// If the cluster cannot be placed, the files for Flux are removed again.
func TestPlaceMovesBothRepositoriesOrNeither(t *testing.T) {
	o, d, fleet := withGitOps(t)
	if err := os.RemoveAll(filepath.Join(d.Repository, "clusters")); err != nil {
		t.Fatal(err)
	}
	if err := d.Place(); err == nil {
		t.Error("placed a missing cluster")
	}
	if _, err := os.Lstat(fleet); err == nil {
		t.Error("Flux's repository is left over")
	}
	if entries, err := os.ReadDir(filepath.Join(o.repository, "clusters")); err != nil || len(entries) > 0 {
		t.Errorf("clusters: %v, %v", entries, err)
	}
}
