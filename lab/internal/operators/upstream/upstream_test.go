package upstream

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ephemeral-castle/castle/lab/internal/operators/clustertest"
)

func TestTheReleasesAreThoseThatAreBuilt(t *testing.T) {
	module, err := os.ReadFile("../../../flux/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	for name, release := range Controllers() {
		if !strings.Contains(string(module), "github.com/fluxcd/"+name+" "+release+" ") {
			t.Errorf("lab/flux builds another release of %s than %s", name, release)
		}
	}
}

// program is a controller that only tells how it was started, and ends when it is told to.
const program = `#!/bin/sh
echo "$(basename "$0") $* in $RUNTIME_NAMESPACE with $KUBECONFIG"
trap 'echo stopped; exit 0' TERM
while :; do sleep 0.05; done
`

func TestAControllerRunsWhileItsDeploymentHasAReplica(t *testing.T) {
	folder, logs := t.TempDir(), t.TempDir()
	for name := range Controllers() {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(program), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	s := clustertest.New(nil, 60, clustertest.Deployment("flux-system", "source-controller"),
		clustertest.Deployment("flux-system", "kustomize-controller"))
	f := New(s.World, folder, t.TempDir(), logs, "/the/kubeconfig")
	defer f.Close()
	tells := func(name, words string) {
		t.Helper()
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for end := time.After(20 * time.Second); ; {
			text, _ := os.ReadFile(filepath.Join(logs, name+".log"))
			if strings.Contains(string(text), words) {
				return
			}
			select {
			case <-end:
				t.Fatalf("%s tells %q, want %q", name, text, words)
			case <-tick.C:
			}
		}
	}
	s.Look(t, f)
	s.Look(t, f) // once is enough
	tells("source-controller", "in flux-system with /the/kubeconfig")
	tells("source-controller", "--requeue-dependency=1s --storage-path=")
	tells("kustomize-controller", "kustomize-controller --metrics-addr=0 --health-addr=0")
	if _, err := os.Stat(filepath.Join(logs, "helm-controller.log")); !os.IsNotExist(err) {
		t.Errorf("a controller without a Deployment has started: %v", err)
	}

	deployments := s.World.Typed.AppsV1().Deployments("flux-system")
	d, err := deployments.Get(t.Context(), "kustomize-controller", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	d.Status = appsv1.DeploymentStatus{}
	if _, err := deployments.UpdateStatus(t.Context(), d, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.Look(t, f)
	tells("kustomize-controller", "stopped")
	if len(f.processes) != 1 || f.processes["source-controller"].ended() {
		t.Errorf("running: %v", f.processes)
	}
	f.Close()
	tells("source-controller", "stopped")
}
