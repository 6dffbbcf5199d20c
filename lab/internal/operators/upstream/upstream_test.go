package upstream

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ephemeral-castle/castle/lab/internal/operators/clustertest"
)

func TestTheReleasesAreThoseThatAreBuilt(t *testing.T) {
	var modules string
	for _, name := range []string{"flux", "metallb"} {
		module, err := os.ReadFile("../../../" + name + "/go.mod")
		if err != nil {
			t.Fatal(err)
		}
		modules += string(module)
	}
	for name, release := range Releases() {
		module := "github.com/fluxcd/" + name
		if name == metalLB {
			module = "go.universe.tf/metallb"
		}
		if !strings.Contains(modules, module+" "+release+" ") {
			t.Errorf("another release of %s is built than %s", name, release)
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
	for name := range Releases() {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(program), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	kustomize := clustertest.Deployment("flux-system", "kustomize-controller")
	kustomize.Spec.Template.Spec.Containers = []corev1.Container{{Args: []string{"--log-encoding=console",
		"--events-addr=http://notification-controller", "--concurrent=10", "--storage-path=/data"}}}
	s := clustertest.New(nil, 60, clustertest.Deployment("flux-system", "source-controller"), kustomize,
		clustertest.Deployment("metallb-system", "metallb-controller"))
	dir, reached := t.TempDir(), routes{}
	f := New(s.World, Options{Folder: folder, Dir: dir, Logs: logs, Kubeconfig: "/the/kubeconfig",
		Routes: reached})
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
	tells("kustomize-controller", "kustomize-controller --metrics-addr=0 --health-addr=0 "+
		"--log-encoding=json --requeue-dependency=1s --concurrent=10 in flux-system")
	tells("metallb-controller", "--cert-dir="+dir+"/k8s-webhook-server/serving-certs ")
	if _, err := os.Stat(filepath.Join(logs, "helm-controller.log")); !os.IsNotExist(err) {
		t.Errorf("a controller without a Deployment has started: %v", err)
	}

	deployments := s.World.Typed.AppsV1().Deployments("flux-system")
	d, err := deployments.Get(t.Context(), "kustomize-controller", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	d.Spec.Template.Spec.Containers[0].Args = []string{"--concurrent=5"}
	if d, err = deployments.Update(t.Context(), d, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.Look(t, f)
	s.Look(t, f)
	tells("kustomize-controller", "--requeue-dependency=1s --concurrent=5 in flux-system")
	d.Status = appsv1.DeploymentStatus{}
	if _, err := deployments.UpdateStatus(t.Context(), d, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.Look(t, f)
	tells("kustomize-controller", "stopped")
	if len(f.processes) != 2 || f.processes["source-controller"].ended() {
		t.Errorf("running: %v", f.processes)
	}
	f.Close()
	tells("source-controller", "stopped")
}

type routes map[string]string

func (r routes) Register(workload, address string) { r[workload] = address }
func (r routes) Unregister(workload string)        { delete(r, workload) }

// As a kubelet, the lab mounts the Secret that MetalLB's controller fills, and each change of it.
func TestMetalLBsCertificatesAreMountedAndItsWebhookIsReached(t *testing.T) {
	folder, dir, reached := t.TempDir(), t.TempDir(), routes{}
	if err := os.WriteFile(filepath.Join(folder, metalLB), []byte(program), 0o700); err != nil {
		t.Fatal(err)
	}
	s := clustertest.New(nil, 0, clustertest.Deployment("metallb-system", metalLB), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "metallb-system", Name: "metallb-webhook-cert"}})
	f := New(s.World, Options{Folder: folder, Dir: dir, Logs: t.TempDir(), Routes: reached})
	defer f.Close()
	const workload = "metallb-system/metallb-controller:9443"
	mounted := filepath.Join(dir, "k8s-webhook-server", "serving-certs", "tls.crt")
	s.Look(t, f)
	if _, err := os.Stat(mounted); !os.IsNotExist(err) || reached[workload] != "127.0.0.1:9443" {
		t.Errorf("before there is a certificate: %v, %v", err, reached)
	}
	secrets := s.World.Typed.CoreV1().Secrets("metallb-system")
	for _, certificate := range []string{"one", "the next one"} {
		secret, err := secrets.Get(t.Context(), "metallb-webhook-cert", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		secret.Data = map[string][]byte{"tls.crt": []byte(certificate)}
		if _, err := secrets.Update(t.Context(), secret, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		s.Look(t, f)
		if text, err := os.ReadFile(mounted); string(text) != certificate {
			t.Errorf("got %q, want %q (%v)", text, certificate, err)
		}
	}
	if err := s.World.Typed.AppsV1().Deployments("metallb-system").Delete(t.Context(), metalLB,
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.Look(t, f)
	if _, err := os.Stat(mounted); !os.IsNotExist(err) || len(reached) != 0 {
		t.Errorf("after the release is gone: %v, %v", err, reached)
	}
}
