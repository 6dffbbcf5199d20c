package kube

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/zclconf/go-cty/cty"
)

// leaky is a Pod in trouble from which one Secret shines everywhere.
func leaky(t *testing.T) *fakeAPI {
	t.Helper()
	f := newFakeAPI(t)
	f.kinds = everyCluster()
	f.add(t, "/apis/apps/v1/namespaces/shop/deployments/web", webDeployment)
	f.add(t, "/api/v1/namespaces/shop/pods/web-1", `
kind: Pod
metadata:
  labels: {app: web}
  managedFields: [{manager: helm}]
  annotations:
    kubectl.kubernetes.io/last-applied-configuration: '{"spec":{"secret":"plain-words-of-a-manifest"}}'
    checksum: hunter2-hunter2
spec:
  containers:
  - name: app
    env: [{name: DB_PASSWORD, value: only-in-the-pod}, {name: DB_URL,
      value: "postgres://shop:in-the-url@db/shop"}, {name: LOG, value: verbose}]
status: {phase: Running, containerStatuses: [{name: app, restartCount: 2,
  state: {waiting: {reason: CrashLoopBackOff}}, lastState: {terminated: {exitCode: 1}}}]}`)
	e := eventOn("shop", "Pod", "web-1", "BackOff", "cannot log in with hunter2-hunter2")
	f.add(t, e.at, e.object)
	f.add(t, "/api/v1/namespaces/shop/secrets/web", `
type: Opaque
data: {password: `+base64.StdEncoding.EncodeToString([]byte("hunter2-hunter2"))+`, config.yaml: `+
		base64.StdEncoding.EncodeToString([]byte("kind: Config\ntoken: \"buried-in-a-file\"\n"))+`}`)
	f.answer("/api/v1/namespaces/shop/pods/web-1/log", 200,
		"kind: Config\nlogging in as shop with hunter2-hunter2\nfile says "+
			"buried-in-a-file\nAuthorization: Bearer abcdefghijklmnop\n")
	return f
}

func TestNoSecretIsInADiagnosis(t *testing.T) {
	f := leaky(t)
	d := newGate(t, "workload", f.kubeconfig(), map[string]cty.Value{"kind": str("Deployment"),
		"namespace": str("shop"), "name": str("web")}).Diagnose(t.Context(), nil)
	all := d.Cause
	for name, data := range d.Files {
		all += "\n== " + name + "\n" + string(data)
	}
	for _, secret := range []string{
		"hunter2", "buried-in-a-file", "only-in-the-pod", "in-the-url", "abcdefghijklmnop",
		"plain-words-of-a-manifest", "managedFields", token,
		base64.StdEncoding.EncodeToString([]byte("hunter2-hunter2")),
	} {
		if strings.Contains(all, secret) {
			t.Errorf("%q is in it:\n%s", secret, all)
		}
	}
	for _, kept := range []string{"kind: Config", "logging in as shop with (sensitive)", "verbose",
		"cannot log in with (sensitive)", "value: postgres://shop:(sensitive)@db/shop"} {
		if !strings.Contains(all, kept) {
			t.Errorf("%q is missing:\n%s", kept, all)
		}
	}
}

func TestLogsAreLeftOutWhenSecretsCannotBeRead(t *testing.T) {
	f := leaky(t)
	f.answer("/api/v1/secrets", 403, failure(403, "Forbidden", "no").body)
	d := newGate(t, "workload", f.kubeconfig(), map[string]cty.Value{"kind": str("Deployment"),
		"namespace": str("shop"), "name": str("web")}).Diagnose(t.Context(), nil)
	if d.Files["pods/shop/web-1.log"] != nil {
		t.Error("a log is kept that nobody has read for secrets")
	}
	if got := string(d.Files["not-read.txt"]); !strings.Contains(got, "log of pod shop/web-1: left out") {
		t.Errorf("it is not said what was left out: %q", got)
	}
	if !strings.HasPrefix(d.Cause, "container app of pod shop/web-1 ended with exit code 1, 2 restarts so "+
		"far") {
		t.Errorf("cause: %q", d.Cause)
	}
}

func TestOnlyTheKeysOfAConfigMapAreShown(t *testing.T) {
	f := newFakeAPI(t)
	f.kinds = append(everyCluster(), kind{"v1", "ConfigMap", "configmaps", true})
	f.add(t, "/api/v1/namespaces/shop/configmaps/settings", "{kind: ConfigMap, data: {dsn: what-it-holds}}")
	d := newGate(t, "condition", f.kubeconfig(), map[string]cty.Value{
		"kind": str("ConfigMap"), "api_version": str("v1"), "namespace": str("shop"), "name": str("settings"),
	}).Diagnose(t.Context(), nil)
	got := string(d.Files["objects/configmap/shop/settings.yaml"])
	if !strings.Contains(got, "dsn: (sensitive)") || strings.Contains(got, "what-it-holds") {
		t.Errorf("got\n%s", got)
	}
}
