package recovery_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/platform"
	"github.com/ephemeral-castle/castle/internal/run/recovery"
	"github.com/ephemeral-castle/castle/internal/state"
)

const (
	vm       = `proxmox_virtual_environment_vm.node["cp-01"]`
	image    = "proxmox_virtual_environment_download_file.talos"
	release  = "helm_release.metallb"
	password = "random_password.grafana"
)

// killed returns a stage whose run was killed while Terraform created these objects, and the state that it
// left.
func killed(t *testing.T, inState ...string) (*state.Stage, *state.State) {
	t.Helper()
	dir, err := state.Open(t.TempDir(), "blue", "proxmox")
	if err != nil {
		t.Fatal(err)
	}
	s := dir.Stage("platform")
	changes := []state.Intended{
		{Address: vm, Type: "proxmox_virtual_environment_vm", Action: "create", ID: "pve/421",
			Before: state.Absent},
		{Address: image, Type: "proxmox_virtual_environment_download_file", Action: "create",
			ID: "pve/local:import/talos.qcow2", Before: state.Absent},
		{Address: release, Type: "helm_release", Action: "create", ID: "metallb-system/metallb",
			Before: state.Absent},
		{Address: password, Type: "random_password", Action: "create", Before: state.Absent},
	}
	log, err := s.Intent().Begin("run-1", changes, []string{"helm_release.metallb"})
	if err != nil {
		t.Fatal(err)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	st := &state.State{Exists: true}
	for _, address := range inState {
		st.Resources = append(st.Resources, state.Resource{Address: address, Mode: "managed"})
	}
	return s, st
}

func addresses(changes []state.Intended) (all []string) {
	for _, c := range changes {
		all = append(all, c.Address)
	}
	return all
}

// The next run looks for what the killed one may have made. It leaves machines to the preflights, which
// compare their uuids, and what exists in the state alone is lost with it.
func TestInFlightIsWhatTheStateLacksAndSomebodyElseMayHave(t *testing.T) {
	s, st := killed(t)
	lost, err := recovery.InFlight(s, st)
	if want := []string{image, release}; err != nil || !slices.Equal(addresses(lost), want) {
		t.Errorf("in flight: %q, %v; want %q", addresses(lost), err, want)
	}
	s, st = killed(t, image)
	lost, err = recovery.InFlight(s, st)
	if want := []string{release}; err != nil || !slices.Equal(addresses(lost), want) {
		t.Errorf("in flight: %q, %v; want %q: the state has the image", addresses(lost), err, want)
	}
}

// castle status names them before any command looks.
func TestSummaryNamesTheRunAndWhatItMayHaveMade(t *testing.T) {
	s, st := killed(t, image)
	got := recovery.Summary(s, st)
	for _, want := range []string{"run run-1 did not finish", vm, release} {
		if !strings.Contains(got, want) {
			t.Errorf("%q lacks %q", got, want)
		}
	}
	for _, not := range []string{image, password} {
		if strings.Contains(got, not) {
			t.Errorf("%q names %q", got, not)
		}
	}
	if err := s.Intent().Clear(); err != nil {
		t.Fatal(err)
	}
	if got := recovery.Summary(s, st); got != "" {
		t.Errorf("a run that finished: %q", got)
	}
}

// datacenter answers where an image is gone.
type datacenter struct {
	platform.Datacenter
	gone  bool
	err   error
	asked []platform.Object
}

func (d *datacenter) Gone(_ context.Context, all []platform.Object, _ func(string)) (
	[]event.OwnedObject, error) {
	d.asked = append(d.asked, all...)
	return []event.OwnedObject{{Gone: d.gone}}, d.err
}

// An import needs to know whether an object exists: Terraform's own import fails for several reasons.
func TestAnImageIsLookedUpInItsDatacenter(t *testing.T) {
	const typ, id = "proxmox_virtual_environment_download_file", "pve/local:import/talos.qcow2"
	down := errors.New("connection refused")
	for name, test := range map[string]struct {
		datacenter datacenter
		exists     bool
		err        error
	}{
		"it is there":                      {datacenter{gone: false}, true, nil},
		"it is gone":                       {datacenter{gone: true}, false, nil},
		"nobody answers: nothing is known": {datacenter{err: down}, false, down},
	} {
		t.Run(name, func(t *testing.T) {
			o := recovery.Lookup{Datacenter: func() (platform.Datacenter, error) {
				return &test.datacenter,
					nil
			}}
			exists, err := o.Has(t.Context(), typ, id, func(string) {})
			if exists != test.exists || !errors.Is(err, test.err) {
				t.Errorf("exists: %v, %v", exists, err)
			}
			want := platform.Object{Kind: platform.Image, Node: "pve", Volume: "local:import/talos.qcow2"}
			if len(test.datacenter.asked) != 1 || test.datacenter.asked[0].ID() != want.ID() ||
				test.datacenter.asked[0].Node != want.Node {
				t.Errorf("asked for %+v", test.datacenter.asked)
			}
		})
	}
}

// Where castle has no lookup, the caller asks Terraform.
func TestOtherTypesHaveNoLookup(t *testing.T) {
	for _, typ := range []string{"infisical_secret", "vault_mount", "helm_release"} {
		_, err := recovery.Lookup{}.Has(t.Context(), typ, "a/b", func(string) {})
		if !errors.Is(err, recovery.ErrNoLookup) {
			t.Errorf("%s: %v", typ, err)
		}
	}
}

// An object is in the cluster if castle connects its provider to it.
func TestHelmIsInTheClusterOnlyWhereCastleWiresIt(t *testing.T) {
	wired := []string{"registry.terraform.io/hashicorp/helm"}
	for typ, want := range map[string]bool{"helm_release": true, "kubernetes_secret_v1": false,
		"random_password": false} {
		if got := recovery.IsInCluster(typ, wired); got != want {
			t.Errorf("%s: %v", typ, got)
		}
	}
}
