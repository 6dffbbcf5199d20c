package applied

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"testing/fstest"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/revision"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/secret"
	"github.com/ephemeral-castle/castle/internal/state"
)

// The namespace changes with each check of the gate, so that its revision tells when castle has read it.
func TestARevisionIsRecordedOnlyIfTheGatesWereAskedAfterIt(t *testing.T) {
	var checks atomic.Int64
	api := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, map[string]string{ //nolint:errcheck // a client that is gone needs no answer
			"/api": `{"kind": "APIGroupDiscoveryList", "items": [{"versions": [{"version": "v1",
				"resources": [{"resource": "namespaces", "scope": "Cluster",
				"responseKind": {"version": "v1", "kind": "Namespace"}}]}]}]}`,
			"/apis": `{"kind": "APIGroupDiscoveryList", "items": []}`,
			"/api/v1/namespaces": fmt.Sprintf(`{"kind": "PartialObjectMetadataList", "items": [{"metadata":
				{"name": "a", "uid": "u", "resourceVersion": "%d"}}]}`, checks.Load()),
		}[r.URL.Path])
	}))
	defer api.Close()
	seen := gate.Type{Name: "seen", New: func(name string, _ gate.Target, _ gate.Values) (gate.Gate, error) {
		return gate.Gate{Name: name, Check: func(context.Context) error {
			if checks.Add(1) == 1 {
				return errors.New("somebody has just changed it")
			}
			return nil
		}}, nil
	}}
	r, s := runOf(t, seen, `gate "seen" "all" {}`)
	const provider = "registry.terraform.io/hashicorp/kubernetes"
	s.InCluster = []string{provider}
	write(t, filepath.Join(r.Cluster.Dir.Path(), "stages", "apps", "terraform.tfstate"),
		`{"version": 4, "terraform_version": "1.9.0", "serial": 1, "lineage": "l", "outputs": {},
		"resources": [{"mode": "managed", "type": "kubernetes_namespace_v1", "name": "a",
		"provider": "provider[\"`+provider+`\"]", "instances": [{"attributes": {"id": "a"}}]}]}`)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: api.Certificate().Raw})
	r.Outputs.Set(s, map[string]state.Output{"kubeconfig": {Value: cty.StringVal(fmt.Sprintf(
		"{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a}}], "+
			"clusters: [{name: a, cluster: {server: %q, certificate-authority-data: %s}}]}",
		api.URL, base64.StdEncoding.EncodeToString(authority)))}})

	if err := RecordRevisions(t.Context(), r, s); err != nil {
		t.Fatal(err)
	}
	objects, err := revision.Recorded(r.Cluster.Dir.Stage(s.Name)).Value()
	if err != nil || len(objects) != 1 || objects[0].Revision != "u/2" || checks.Load() != 3 {
		t.Errorf("recorded %v (%v) after %d checks, want the object as it was before the last one", objects,
			err, checks.Load())
	}
}

// runOf is a run of a cluster with one stage, which has gates of one type.
// A machine that was made anew has no configuration yet: what has configured the earlier one is outdated.
func TestOutdatedIsWhatHasConfiguredAnEarlierInstance(t *testing.T) {
	r, s := runOf(t, gate.Type{Name: "none"},
		`replace "terraform_data.node" { instance = { a = "run-1", b = "run-2", c = "run-2" } }`)
	st := &state.State{Resources: []state.Resource{{Address: `terraform_data.node["a"]`},
		{Address: `terraform_data.node["b"]`}}}
	is := func(want ...string) {
		t.Helper()
		if got, err := Outdated(r, s, st); !slices.Equal(got, want) || err != nil {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
	is(`terraform_data.node["a"]`, `terraform_data.node["b"]`) // nobody has noted what configured them
	before := map[string]string{`terraform_data.node["a"]`: "run-1", `terraform_data.node["b"]`: "run-1"}
	if err := instancesOf(r.Cluster.Dir.Stage(s.Name)).Write(before); err != nil {
		t.Fatal(err)
	}
	is(`terraform_data.node["b"]`) // c does not exist yet
	isA := func(address string) bool { return address == `terraform_data.node["a"]` }
	if err := RecordInstances(r, s, isA); err != nil {
		t.Fatal(err)
	}
	is(`terraform_data.node["b"]`) // it was not applied
	if err := RecordInstances(r, s, func(string) bool { return true }); err != nil {
		t.Fatal(err)
	}
	is()
}

func runOf(t *testing.T, typ gate.Type, gates string) (*run.Run, *config.Stage) {
	t.Helper()
	repository := t.TempDir()
	write(t, filepath.Join(repository, "clusters/blue/proxmox/cluster.hcl"),
		`stage "apps" { source = "platform/apps" }`)
	write(t, filepath.Join(repository, "clusters/blue/proxmox/terraform.tfvars"), "")
	write(t, filepath.Join(repository, "stages/platform/apps/stage.hcl"), "stage {}\n"+gates)
	write(t, filepath.Join(repository, "stages/platform/apps/main.tf"), `resource "terraform_data" "node" {}`)
	loaded, diags := config.Load(config.Options{Repository: repository, Cluster: "blue",
		Gates: []gate.Type{typ}, Library: fstest.MapFS{}, Templates: fstest.MapFS{}})
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	dir, err := state.Open(t.TempDir(), "blue", "proxmox")
	if err != nil {
		t.Fatal(err)
	}
	masker := &secret.Masker{}
	return &run.Run{Cluster: &cluster.Cluster{Config: loaded, Dir: dir, Masker: masker},
		Outputs: run.NewOutputs(masker)}, loaded.Stages[0]
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
