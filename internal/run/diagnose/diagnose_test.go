package diagnose

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/run/waiting"
	"github.com/ephemeral-castle/castle/internal/secret"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/store"
	"github.com/ephemeral-castle/castle/internal/terraform"
)

// recordedRun is a run of a cluster with one stage, whose state has some resources.
func recordedRun(t *testing.T, stage, resources string) *run.Run {
	t.Helper()
	dir, err := state.Open(t.TempDir(), "blue", "proxmox")
	if err != nil {
		t.Fatal(err)
	}
	at := dir.Stage(stage).StatePath()
	if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf(`{"version": 4, "serial": 1, "lineage": "a", "outputs": {}, "resources": [%s]}`,
		resources)
	if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	files := dir.NewRun("create")
	journal, err := files.Journal()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { journal.Close() }) //nolint:errcheck // the test is over
	c := &cluster.Cluster{
		Options: cluster.Options{Cluster: "blue"}, Dir: dir, Masker: &secret.Masker{},
		Config: &config.Cluster{Name: "blue", Stages: []*config.Stage{{Name: stage, Layer: "networking"}}},
	}
	return &run.Run{Cluster: c, Files: files, Journal: journal, Outputs: run.NewOutputs(c.Masker)}
}

func TestAMissingObjectNamesTheStageOfItsRelease(t *testing.T) {
	r := recordedRun(t, "metallb", `{"mode": "managed", "type": "helm_release", "name": "this",
		"provider": "provider[\"registry.terraform.io/hashicorp/helm\"]",
		"instances": [{"index_key": "a", "attributes": {"name": "metallb", "namespace": "metallb-system"}}]}`)
	for release, want := range map[string]string{
		"metallb-system/metallb": "castle create blue --only metallb",
		"metallb-system/other":   "",
		"":                       "",
	} {
		if got := healing(r, release); got != want {
			t.Errorf("%q: got %q, want %q", release, got, want)
		}
	}
}

func TestALostEtcdIsExplainedWithItsFix(t *testing.T) {
	const bootstrap = `{"mode": "managed", "type": "talos_machine_bootstrap", "name": "this", ` +
		`"provider": "provider[\"registry.terraform.io/siderolabs/talos\"]", ` +
		`"instances": [{"attributes": {}}]}`
	const fix = "castle destroy blue && castle create blue"
	for name, tt := range map[string]struct {
		resources   string
		kind, found gate.Kind
		made        bool // by this run
		want        string
	}{
		"all lost":           {bootstrap, gate.EtcdDown, "", false, fix},
		"all wait to join":   {bootstrap, "", gate.NeverBootstrapped, false, fix},
		"only now raised":    {bootstrap, gate.EtcdDown, "", true, ""},
		"never bootstrapped": {"", gate.EtcdDown, "", false, ""},
		"something else":     {bootstrap, gate.NotFound, "", false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := recordedRun(t, "machines", tt.resources)
			if tt.made {
				r.Emit(event.Event{Kind: event.Resource, Stage: "machines", Action: "create",
					Address: "talos_machine_bootstrap.this"})
			}
			f := &run.Finding{Gate: "talos_etcd.quorum", Kind: tt.kind, Found: gate.Diagnosis{Kind: tt.found}}
			nodes := &run.Finding{Gate: "nodes.ready", Report: event.Diagnosis{Seen: "connection refused"}}
			checkLostEtcd(r, Subject{Layer: "platform", Name: "machines"}, []*run.Finding{nodes, f})
			if f.Report.Next != tt.want || (f.Report.Cause != "") != (tt.want != "") ||
				nodes.Report.Cause != f.Report.Cause {
				t.Errorf("got %q, %q; want %q", f.Report.Cause, f.Report.Next, tt.want)
			}
		})
	}
}

func TestKnownFailuresOfTerraformAreRecognised(t *testing.T) {
	for _, known := range []struct{ words, part string }{
		{"helm_release.metallb: installation failed: cannot re-use a name that is still in use",
			"is in the cluster and not in Terraform's state"},
		{`Internal error occurred: failed calling webhook "pool.metallb.io": connection refused`,
			"an admission webhook does not answer"},
		{`no matches for kind "IPAddressPool" in version "metallb.io/v1beta1"`,
			"the operator whose CRDs define it has to be ready first"},
		{"can't lock file '/var/lock/qemu-server/lock-421.conf' - got timeout",
			"another task of this machine"},
		{"unable to login to Infisical: status-code=401", "INFISICAL_HOST=https://eu.infisical.com"},
		{"the rack is on fire", ""},
	} {
		words, part := known.words, known.part
		cause, _ := terraform.CauseOf(words)
		if (part == "") != (cause == "") || !strings.Contains(cause, part) {
			t.Errorf("%s: got %q", words, cause)
		}
	}
}

func TestAFullStoreIsNamed(t *testing.T) {
	failed := &store.Error{URL: "file:///srv/castle", Op: "create", Key: "blue/proxmox/log/1",
		Kind: store.Full, Err: syscall.ENOSPC}
	step := &run.StepError{Err: fmt.Errorf("nothing was changed: %w", failed)}
	d := inspectStep(recordedRun(t, "metallb", ""), Subject{}, step)(t.Context())
	if !strings.Contains(d.Cause, "file:///srv/castle is full: make room there") {
		t.Errorf("cause: %q", d.Cause)
	}
}

func TestClosedGatesAreFoundInWrappedErrors(t *testing.T) {
	a, b := &waiting.GateError{Gate: "nodes.a", Err: errors.New("a")},
		&waiting.GateError{Gate: "nodes.b", Err: errors.New("b")}
	err := fmt.Errorf("stage x: %w\n  log: y", errors.Join(a, fmt.Errorf("and %w", b), errors.New("c")))
	if got := closedGates(err); len(got) != 2 || got[0] != a || got[1] != b {
		t.Errorf("got %v", got)
	}
}

func TestGatesClosedForOneReasonAreGrouped(t *testing.T) {
	one := func(gateName, cause, about string, kind gate.Kind) *run.Finding {
		return &run.Finding{
			Gate: gateName, Report: event.Diagnosis{Waited: "gate " + gateName, Cause: cause},
			Found: gate.Diagnosis{Kind: kind, About: about, Files: map[string][]byte{gateName: nil}},
		}
	}
	const server = "service longhorn-system/webhook"
	for name, tt := range map[string]struct {
		findings []*run.Finding
		want     []string
		files    int // of the first
	}{
		"an equal cause": {[]*run.Finding{one("workload.a", "no image", "", ""), one("nodes.b", "", "", ""),
			one("webhook.c", "no image", "", ""), one("nodes.d", "", "", "")},
			[]string{"gate workload.a; the same cause closes 1 further; 2 further gates follow from it"}, 4},
		"the same server": {[]*run.Finding{one("condition.a", "no Node exists", "", gate.NotFound),
			one("webhook.b", "mutator: CA expired", server, "ca-expired"),
			one("webhook.c", "validator: CA expired", server, "ca-expired")},
			[]string{"gate webhook.b; the same cause closes 1 further; 1 further gate follows from it"}, 3},
		"two causes": {[]*run.Finding{one("workload.a", "no image", "", ""),
			one("nodes.b", "no network", "node b", "")}, []string{"gate workload.a", "gate nodes.b"}, 1},
		"nothing exists": {[]*run.Finding{one("nodes.a", "", "", ""),
			one("crd.b", "not installed", "", gate.NotFound), one("crd.c", "not made", "", gate.NotFound)},
			[]string{"gate crd.b; 2 further gates follow from it"}, 3},
		"none is known": {[]*run.Finding{one("nodes.a", "", "", ""), one("nodes.b", "", "", "")},
			[]string{"gate nodes.a; 1 further gate follows from it"}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			roots := Group(tt.findings)
			for _, f := range roots {
				got = append(got, f.Report.Waited)
			}
			if !slices.Equal(got, tt.want) || len(roots[0].Found.Files) != tt.files {
				t.Errorf("got %q, %d files", got, len(roots[0].Found.Files))
			}
		})
	}
}

func TestAGateThatWasExplainedIsNotAskedAgain(t *testing.T) {
	r := recordedRun(t, "metallb", "")
	s := &config.Stage{Name: "metallb", Layer: "networking"}
	g := &config.Gate{Label: "web", Of: s, Type: gate.Type{Name: "workload"}}
	s.Gates = []*config.Gate{g}
	closed := &waiting.GateError{Gate: g.Name(), Err: &gate.TimeoutError{Last: errors.New("0 of 1 ready")}}
	closed.Finding = waiting.NewFinding(g, closed)
	closed.Finding.Found = gate.Diagnosis{Cause: "no image"}
	findings := Look(t.Context(), r, Subject{s.Layer, s.Name, s}, fmt.Errorf("stage metallb: %w", closed))
	if len(findings) != 1 || findings[0].Report.Cause != "no image" ||
		findings[0].Report.Seen != "0 of 1 ready" {
		t.Errorf("found %+v", findings)
	}
}
