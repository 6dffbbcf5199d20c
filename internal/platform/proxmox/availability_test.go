package proxmox

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	emulator "github.com/ephemeral-castle/castle/internal/emulator/proxmox"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/platform"
	"github.com/ephemeral-castle/castle/internal/platform/proxmox/values"
	terraform "github.com/ephemeral-castle/castle/internal/state"
)

// highlyAvailable is the state of machine 421 with its high availability and a rule.
func highlyAvailable() []gate.Known {
	return append(state()[:1],
		gate.Known{Address: `proxmox_haresource.machine["cp-01"]`, Type: "proxmox_haresource",
			Attributes: map[string]any{"id": "vm:421", "resource_id": "vm:421", "state": "started"}},
		gate.Known{Address: "proxmox_harule.controlplanes[0]", Type: "proxmox_harule",
			Attributes: map[string]any{"id": "castle-blue-1f", "rule": "castle-blue-1f"}})
}

// available is a datacenter with that, and with somebody else's rule.
func available(t *testing.T) datacenter {
	t.Helper()
	d := newDatacenter(t, emulator.Config{})
	vm := machine421()
	vm.HA = true
	d.server.AddVM(vm)
	d.server.AddRule("castle-blue-1f", map[string]string{"type": "resource-affinity", "affinity": "negative",
		"resources": "vm:421,vm:422"})
	d.server.AddRule("web", map[string]string{"type": "resource-affinity", "resources": "vm:100"})
	return d
}

func (d datacenter) must(t *testing.T, method, path string, form url.Values) {
	t.Helper()
	if err := d.send(t, method, path, form); err != nil {
		t.Fatal(err)
	}
	d.server.Idle()
}

func TestHighAvailabilityIsProvedGone(t *testing.T) {
	d := available(t)
	owned := values.ObjectsOf(highlyAvailable())
	left, _ := ask(t, d, Search{}, owned)
	want := []string{"HA resource vm:421: still there", "HA rule castle-blue-1f: still there"}
	if len(left) != 3 || !slices.Equal(left[1:], want) {
		t.Errorf("left %q", left)
	}
	for kind, fix := range map[string]string{
		platform.HAResource: "as root on a node: ha-manager remove vm:421",
		platform.HARule:     "as root on a node: ha-manager rules remove castle-blue-1f",
	} {
		i := slices.IndexFunc(owned, func(o platform.Object) bool { return o.Kind == kind })
		if got := (Platform{}).Remedy(owned[i]); got != fix {
			t.Errorf("%s: %q", kind, got)
		}
	}
	d.must(t, http.MethodDelete, "cluster/ha/rules/castle-blue-1f", nil)
	d.must(t, http.MethodDelete, "cluster/ha/resources/vm:421", nil)
	d.server.RemoveVM(421)
	if left, gone := ask(t, d, Search{}, owned); len(left) > 0 || len(gone) != 4 {
		t.Errorf("left %q, gone %q", left, gone)
	}
}

// The id may belong to another machine by now, which may be highly available, too.
func TestHighAvailabilityOfAnotherMachineIsNotOurs(t *testing.T) {
	d := available(t)
	d.server.RemoveVM(421)
	d.server.AddVM(emulator.VM{ID: 421, Name: "prod", HA: true,
		Config: map[string]string{"net0": "virtio=BC:24:11:00:00:99,bridge=vmbr0"}})
	left, gone := ask(t, d, Search{}, values.ObjectsOf(highlyAvailable()))
	if !slices.Contains(gone, "HA resource vm:421") {
		t.Errorf("left %q, gone %q", left, gone)
	}
}

func TestATokenWithoutTheRightOnHighAvailabilityProvesNothing(t *testing.T) {
	d := available(t)
	d.server.Fail(emulator.Fault{Method: "GET", Path: "cluster/ha/*", Code: 403,
		Text: "Permission check failed (/, Sys.Audit)"})
	left, _ := ask(t, d, Search{}, values.ObjectsOf(highlyAvailable()))
	for _, line := range left[1:] {
		if !strings.Contains(line, "not proved") || !strings.HasSuffix(line, "the token Sys.Audit on /") {
			t.Error(line)
		}
	}
}

func TestRevisionsChangeWithHighAvailability(t *testing.T) {
	d := available(t)
	s := d.stageOf()
	s.State.Resources = nil
	for _, k := range highlyAvailable()[1:] {
		s.State.Resources = append(s.State.Resources, terraform.Resource{Address: k.Address, Type: k.Type,
			Mode: "managed", Attributes: k.Attributes})
	}
	recorded, err := Revisions().Read(soon(t), s, nil)
	if err != nil || len(recorded) != 2 {
		t.Fatalf("%+v, %v", recorded, err)
	}
	changes := func(want ...string) {
		t.Helper()
		if got := changesOf(t, s, recorded); !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	changes()
	d.must(t, http.MethodPut, "cluster/ha/resources/vm:421", url.Values{"state": {"stopped"}})
	changes("HA resource vm:421 has changed")
	d.must(t, http.MethodDelete, "cluster/ha/resources/vm:421", nil)
	changes("HA resource vm:421 is absent", "HA rule castle-blue-1f has changed")
}

// A run that was killed may have made them. Terraform imports them by these ids.
func TestHighAvailabilityIsLookedUp(t *testing.T) {
	for typ, want := range map[string]platform.Object{
		"proxmox_haresource":                     {Kind: platform.HAResource, Volume: "x"},
		"proxmox_harule":                         {Kind: platform.HARule, Volume: "x"},
		"proxmox_virtual_environment_haresource": {Kind: platform.HAResource, Volume: "x"},
	} {
		got, is := Platform{}.FileOf(typ, "x")
		if !is || got.Kind != want.Kind || got.Volume != want.Volume || got.IsFile() || got.ID() != "x" {
			t.Errorf("%s: %+v", typ, got)
		}
		if (Platform{}).Identities()[typ].ID == "" || !(Platform{}).Owns(typ) {
			t.Errorf("%s has no identity", typ)
		}
	}
}

// The rights are on the whole datacenter, and do not reach what is below it.
func TestHighAvailabilityHasItsRights(t *testing.T) {
	commands := strings.Join(Footprint{Pool: "green", HA: true}.Commands("castle@pve!green"), "\n")
	for _, want := range []string{"pveum role add CastleHA --privs Sys.Audit,Sys.Console\n",
		"pveum acl modify / --users castle@pve --tokens 'castle@pve!green' --roles CastleHA --propagate 0"} {
		if !strings.Contains(commands, want) {
			t.Errorf("%q is not in\n%s", want, commands)
		}
	}
	plain := strings.Join(Footprint{Pool: "green"}.Commands("castle@pve!green"), "\n")
	if strings.Contains(plain, "CastleHA") {
		t.Error(plain)
	}
}
