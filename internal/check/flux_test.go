package check_test

import (
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"
	"golang.org/x/tools/txtar"

	"github.com/ephemeral-castle/castle/internal/check"
)

// twice checks the fixture owned-twice with further changes, and returns the objects that it reports.
func twice(t *testing.T, changes string) string {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, archive(t, "testdata/base.txtar"), archive(t, "testdata/rules/owned-twice.txtar"),
		txtar.Parse([]byte(changes)))
	report, err := check.Run(options(dir))
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, d := range report.Diagnostics {
		if d.Severity == hcl.DiagError {
			t.Errorf("an error: %s", d.Summary)
		}
		if check.RuleOf(d) == "owned-twice" {
			name, _, _ := strings.Cut(d.Summary, ":")
			found = append(found, name)
		}
	}
	return strings.Join(found, ", ")
}

// The fix that the rule names works.
func TestDisabledStageOwnsNothing(t *testing.T) {
	got := twice(t, `
-- edit clusters/blue/proxmox/cluster.hcl --
-stage "metallb" { source = "networking/metallb" }
-stage "address-pool" { source = "networking/address-pool" }
-stage "longhorn" { source = "storage/longhorn" }
+stage "metallb" {
+  source   = "networking/metallb"
+  enabled  = false
+  asked_by = "sync"
+}
+stage "address-pool" {
+  source   = "networking/address-pool"
+  enabled  = false
+}
+stage "longhorn" {
+  source   = "storage/longhorn"
+  enabled  = false
+  asked_by = "sync"
+}
`)
	if want := "GitRepository flux-system/flux-system, ConfigMap flux-system/cluster-vars"; got != want {
		t.Errorf("owned twice: %s", got)
	}
}

func TestSuspendedKustomizationOwnsNothing(t *testing.T) {
	got := twice(t, `
-- edit fleet/clusters/blue/infrastructure.yaml --
-  prune: true
+  prune: true
+  suspend: true
`)
	if strings.Contains(got, "longhorn") || !strings.Contains(got, "cluster-vars") {
		t.Errorf("owned twice: %s", got)
	}
}

// A stage of the user's own is read like castle's: names from variables, instances, manifests.
func TestObjectsOfOwnStageAreCompared(t *testing.T) {
	got := twice(t, `
-- edit clusters/blue/proxmox/cluster.hcl --
-stage "longhorn" { source = "storage/longhorn" }
+stage "longhorn" { source = "storage/longhorn" }
+stage "own" { source = "storage/own" }
-- stages/storage/own/stage.hcl --
stage { summary = "Something else" }
-- stages/storage/own/main.tf --
terraform {
  required_providers {
    kubernetes = { source = "hashicorp/kubernetes" }
    helm       = { source = "hashicorp/helm" }
  }
}
variable "spaces" {
  type    = set(string)
  default = ["one", "two"]
}
resource "kubernetes_secret" "key" {
  metadata {
    name      = "key"
    namespace = kubernetes_namespace.each["one"].metadata[0].name # of many: not known
  }
}
resource "kubernetes_namespace" "each" {
  for_each = var.spaces
  metadata { name = each.key }
}
resource "kubernetes_namespace" "none" {
  count = 0
  metadata { name = "none" }
}
resource "kubernetes_manifest" "class" {
  manifest = {
    apiVersion = "storage.k8s.io/v1"
    kind       = "StorageClass"
    metadata   = { name = "fast" }
  }
}
resource "helm_release" "redis" {
  name      = "redis"
  namespace = kubernetes_namespace.later.metadata[0].name
  chart     = "redis"
}
resource "kubernetes_namespace" "later" {
  metadata { name = "later" }
}
-- fleet/infrastructure/own.yaml --
apiVersion: v1
kind: Namespace
metadata: { name: two }
---
apiVersion: v1
kind: Namespace
metadata: { name: none }
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: { name: fast }
---
apiVersion: v1
kind: Secret
metadata: { name: key, namespace: other }
---
apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata: { name: redis, namespace: later }
spec: { chart: { spec: { chart: redis } } }
---
apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata: { name: other, namespace: later }
spec: { chart: { spec: { chart: redis } } }
`)
	if want := "Namespace two, StorageClass fast, HelmRelease later/redis"; !strings.Contains(got, want) ||
		strings.Contains(got, "none") || strings.Contains(got, "other") || strings.Contains(got, "key") {
		t.Errorf("owned twice: %s", got)
	}
}
