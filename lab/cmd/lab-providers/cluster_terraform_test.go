//go:build integration

package main

import (
	"bufio"
	"context"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/repo"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	client "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/ephemeral-castle/castle/lab/internal/kubernetes"
	"github.com/ephemeral-castle/castle/lab/internal/kubernetes/kubernetestest"
)

const clusterConfig = `
terraform {
  required_providers {
    helm       = { source = "hashicorp/helm", version = "~> 3.1" }
    kubernetes = { source = "hashicorp/kubernetes", version = "~> 3.2" }
  }
}
variable "kubeconfig" {}
variable "repository" {}
variable "replicas" { default = 1 }
variable "token" { default = "one" }
provider "kubernetes" { config_path = var.kubeconfig }
provider "helm" {
  kubernetes = { config_path = var.kubeconfig }
}
resource "kubernetes_namespace_v1" "n" {
  metadata {
    name   = "metallb-system"
    labels = { "pod-security.kubernetes.io/enforce" = "privileged" }
  }
}
resource "kubernetes_secret_v1" "s" {
  metadata {
    name      = "token"
    namespace = kubernetes_namespace_v1.n.metadata[0].name
  }
  data = { token = var.token, absent = null }
}
resource "kubernetes_config_map_v1" "m" {
  metadata {
    name      = "cluster-vars"
    namespace = kubernetes_namespace_v1.n.metadata[0].name
  }
  data = { cluster_name = "blue" }
}
resource "helm_release" "r" {
  name            = "metallb"
  namespace       = kubernetes_namespace_v1.n.metadata[0].name
  repository      = var.repository
  chart           = "metallb"
  version         = "0.15.2"
  wait            = true
  timeout         = 60
  upgrade_install = true
  values          = [yamlencode({ replicas = var.replicas })]
  set             = [{ name = "label", value = "x" }]
}
output "secret" { value = kubernetes_secret_v1.s.metadata[0].name }
`

// controlPlaneDir is the variable that makes the test binary a control plane.
const controlPlaneDir = "LAB_PROVIDERS_CONTROL_PLANE"

// runControlPlane runs the lab's Kubernetes in a process of its own, because Kubernetes ends only
// with its process. It prints "ready" to stdout and runs until it is killed.
func runControlPlane(dir string) error {
	config, err := kubernetestest.Config(dir)
	if err != nil {
		return err
	}
	c, err := kubernetes.Start(context.Background(), config)
	if err != nil {
		return err
	}
	node := kubernetes.Node{Name: "worker-01", Addresses: []string{"192.0.2.11"}, CPUs: 4,
		MemoryBytes: 8 << 30}
	if err := (kubernetes.Nodes{Client: c.Client}).Run(context.Background(), node); err != nil {
		return err
	}
	fmt.Println("ready", c.KubeconfigPath)
	return c.Wait()
}

// controlPlane starts a control plane and returns its kubeconfig's path and a client.
func controlPlane(t *testing.T) (string, client.Interface) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(t.TempDir(), "log")
	stderr, err := os.Create(log)
	if err != nil {
		t.Fatal(err)
	}
	defer stderr.Close()
	cmd := exec.Command(self)
	cmd.Env, cmd.Stderr = append(os.Environ(), controlPlaneDir+"="+t.TempDir()), stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
		cmd.Wait() //nolint:errcheck // it was killed
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	path, ready := strings.CutPrefix(strings.TrimSpace(line), "ready ")
	if err != nil || !ready {
		content, readErr := os.ReadFile(log)
		t.Fatalf("the control plane did not start: %v, %v\n%s", err, readErr, content)
	}
	access, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.NewForConfig(access)
	if err != nil {
		t.Fatal(err)
	}
	return path, c
}

// chartRepository serves one chart over TLS and returns its URL and its CA file.
func chartRepository(t *testing.T) (url, ca string) {
	t.Helper()
	folder := t.TempDir()
	server := httptest.NewTLSServer(http.FileServer(http.Dir(folder)))
	t.Cleanup(server.Close)
	deployment := `apiVersion: apps/v1
kind: Deployment
metadata: { name: controller, labels: { l: {{ .Values.label }} } }
spec:
  replicas: {{ .Values.replicas }}
  selector: { matchLabels: { app: c } }
  template:
    metadata: { labels: { app: c } }
    spec: { containers: [{ name: c, image: example.org/c }] }
`
	_, err := chartutil.Save(&chart.Chart{
		Metadata:  &chart.Metadata{APIVersion: "v2", Name: "metallb", Version: "0.15.2"},
		Templates: []*chart.File{{Name: "templates/d.yaml", Data: []byte(deployment)}},
	}, folder)
	if err != nil {
		t.Fatal(err)
	}
	index, err := repo.IndexDirectory(folder, server.URL)
	if err == nil {
		err = index.WriteFile(filepath.Join(folder, "index.yaml"), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	ca = filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca,
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
		0o600); err != nil {
		t.Fatal(err)
	}
	return server.URL, ca
}

func TestObjectsAndReleasesLiveInARealCluster(t *testing.T) {
	kubeconfig, c := controlPlane(t)
	url, ca := chartRepository(t)
	w := module(t, clusterConfig, "SSL_CERT_FILE="+ca, "TF_VAR_repository="+url,
		"TF_VAR_kubeconfig="+kubeconfig)
	w.apply()
	w.unchanged()
	d, err := c.AppsV1().Deployments("metallb-system").Get(t.Context(), "controller", metav1.GetOptions{})
	if err != nil || d.Status.ReadyReplicas != 1 {
		t.Errorf("helm_release waited, but the Deployment has %d ready replicas, %v",
			d.Status.ReadyReplicas, err)
	}
	out := w.must("apply", "-auto-approve", "-var=replicas=2", "-var=token=two")
	if !strings.Contains(out, "0 added, 2 changed, 0 destroyed") {
		t.Errorf("new values should change the release and the secret in place:\n%s", out)
	}
	s, err := c.CoreV1().Secrets("metallb-system").Get(t.Context(), "token", metav1.GetOptions{})
	if err != nil || string(s.Data["token"]) != "two" {
		t.Errorf("secret: %v", err)
	}
	w.must("state", "rm", "kubernetes_config_map_v1.m", "helm_release.r")
	code, out := w.run("apply", "-auto-approve", "-var=replicas=2", "-var=token=two")
	if code == 0 || !strings.Contains(out, `configmaps "cluster-vars" already exists`) {
		t.Errorf("apply over an object that Terraform does not know: exit %d\n%s", code, out)
	}
	w.must("import", "kubernetes_config_map_v1.m", "metallb-system/cluster-vars")
	w.must("apply", "-auto-approve", "-var=replicas=2", "-var=token=two")
	w.must("destroy", "-auto-approve")
	if _, err := c.CoreV1().Namespaces().Get(t.Context(), "metallb-system",
		metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("destroy waits until the namespace is gone: %v", err)
	}
}
