package proxmox

import (
	"context"
	"fmt"
	"time"

	"github.com/ephemeral-castle/castle/internal/doctor/finding"
	"github.com/ephemeral-castle/castle/internal/effect"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/platform"
	"github.com/ephemeral-castle/castle/internal/platform/proxmox/effects"
	"github.com/ephemeral-castle/castle/internal/platform/proxmox/values"
	"github.com/ephemeral-castle/castle/internal/process"
	"github.com/ephemeral-castle/castle/internal/revision"
	"github.com/ephemeral-castle/castle/internal/terraform"
	"github.com/ephemeral-castle/castle/internal/terraform/planned"
)

// Platform is Proxmox VE.
type Platform struct {
	// Doctor makes doctor's checks; package doctor below has them.
	Doctor func(platform.Subject) []finding.Check
}

var _ platform.Platform = Platform{}

// The methods of Platform answer as the interfaces of package platform say.

func (Platform) Name() string                     { return "Proxmox" }
func (Platform) Preflights() []gate.PreflightType { return PreflightTypes() }
func (Platform) MachinePreflight() string         { return PreflightVMIDs }
func (Platform) Revisions() revision.System       { return Revisions() }
func (Platform) Owns(typ string) bool             { return values.Owns(typ) }
func (Platform) IsMachine(typ string) bool        { return typ == values.TypeVM }
func (Platform) FoundByPreflights(t string) bool  { return t == values.TypeVM }
func (Platform) Remedy(o platform.Object) string  { return remedy(o) }
func (Platform) CheckToken(token string) error    { return CheckToken(token) }
func (Platform) SameEndpoint(a, b string) bool    { return SameEndpoint(a, b) }
func (Platform) FileID(k gate.Known) string       { return values.FileID(k) }

func (Platform) Effects(was map[string]any, replaces bool, all []planned.Difference) []effect.Effect {
	return effects.Of(fmt.Sprintf("VM %d", values.ReadAttributes(was).VM), replaces, all)
}

func (Platform) Identities() map[string]terraform.Identity { return values.Identities() }

func (Platform) FileOf(typ, id string) (platform.Object, bool) { return values.FileOf(typ, id) }

func (Platform) Describe(attributes map[string]any) (machine string, disks []string) {
	a := values.ReadAttributes(attributes)
	return fmt.Sprintf("VM %d on node %s", a.VM, a.Node), effects.Disks(attributes)
}

func (p Platform) Checks(s platform.Subject) []finding.Check { return p.Doctor(s) }

func (Platform) ObjectsOf(known []gate.Known) []platform.Object { return values.ObjectsOf(known) }

func (Platform) MachineID(typ string, attributes map[string]any) (id int, isMachine bool) {
	return values.GuestID(typ, attributes)
}

func (Platform) LacksMachines(v gate.Values, known []gate.Known) bool { return lacksMachines(v, known) }

func (Platform) Account(v gate.Values) (platform.Account, []int, error) { return AccountOf(v) }

// The variables of bpg's provider.
const endpointVariable, tokenVariable = "PROXMOX_VE_ENDPOINT", "PROXMOX_VE_API_TOKEN"

func (Platform) Variables() (endpoint, token string) { return endpointVariable, tokenVariable }

func (Platform) Environment(environ []string) platform.Account {
	insecure := process.Getenv(environ, "PROXMOX_VE_INSECURE")
	return platform.Account{
		Endpoint: process.Getenv(environ, endpointVariable),
		Token:    process.Getenv(environ, tokenVariable),
		Insecure: insecure == "1" || insecure == "true",
	}
}

func (Platform) Open(a platform.Account) (platform.Datacenter, error) {
	client, err := NewClient(a)
	if err != nil {
		return nil, err
	}
	return Search{Client: client}, nil
}

func (Platform) Nuke(a platform.Account, m platform.Signs, note func(line any, text string) error) (
	platform.Nuke, error) {
	client, err := NewClient(a)
	removal := &Removal{Client: client, Ownership: Ownership(m),
		Note: func(s Step) error { return note(s, s.String()) }}
	return &nuke{removal, map[int]Guest{}}, err
}

// Name is Proxmox.
func (Search) Name() string { return Platform{}.Name() }

// Admitted returns an error unless the datacenter accepts the token.
func (s Search) Admitted(ctx context.Context) error { return s.Client.Admitted(ctx) }

// TokenExpiry returns when the token expires; see Client.TokenExpiry.
func (s Search) TokenExpiry(ctx context.Context) (expires time.Time, fix string, err error) {
	return s.Client.TokenExpiry(ctx)
}

// FileUser returns a guest that may use a file; see Client.FileUser.
func (s Search) FileUser(ctx context.Context, cluster, volume string, own []platform.Object) (string, error) {
	return s.Client.FileUser(ctx, cluster, volume, own)
}

// Costs are unknown.
func (Search) Costs(context.Context, gate.Values) (*platform.Costs, error) { return nil, nil }

// Unrecorded lists the cluster's machines that are in no state; see Client.UnrecordedMachines.
func (s Search) Unrecorded(ctx context.Context, cluster string, v gate.Values, known []gate.Known) (
	machines []platform.Guest, unseen []int, err error) {
	guests, unseen, err := s.Client.UnrecordedMachines(ctx, cluster, v, known)
	uuids := recordedUUIDs(known)
	for _, g := range guests {
		one := g.listed()
		one.CopyOf = uuids[g.UUID()]
		machines = append(machines, one)
	}
	return machines, unseen, err
}

func called(id int) string { return fmt.Sprintf("VM %d", id) }

// listed is the guest as the rest of castle knows it.
func (g Guest) listed() platform.Guest {
	return platform.Guest{
		ID: g.ID, Called: called(g.ID), Where: "on node " + g.Node, Name: g.Name, Kind: g.Kind, Node: g.Node,
		Status: g.Status, Tags: g.Tags(), UUID: g.UUID(), Uptime: g.Uptime, Pool: g.Pool, State: g.State(),
		Unread: g.Hidden || g.Unreadable != "",
	}
}

// nuke is a Removal with the guests of its last survey.
type nuke struct {
	removal  *Removal
	surveyed map[int]Guest
}

func (n *nuke) Survey(ctx context.Context) (all []platform.Guest, err error) {
	guests, err := n.removal.Client.Survey(ctx, n.removal.Ownership.Range, n.removal.Ownership.Known)
	if err != nil {
		return nil, err
	}
	unnamed := n.removal.Ownership
	unnamed.Foreign = nil
	all = []platform.Guest{}
	for _, g := range guests {
		n.surveyed[g.ID] = g
		listed := g.listed()
		listed.Refused = n.removal.Ownership.Refusals(g)
		listed.Foreign = listed.Goes() && len(unnamed.Refusals(g)) > 0
		all = append(all, listed)
	}
	return all, nil
}

func (n *nuke) Disks(ctx context.Context, stays func(int) string) ([]platform.Orphan, []string, error) {
	return n.removal.Client.Orphans(ctx, n.removal.Ownership.Range, stays)
}

func (n *nuke) Remove(ctx context.Context, g platform.Guest) (platform.Remains, error) {
	return n.removal.Remove(ctx, n.surveyed[g.ID])
}

func (n *nuke) Remaining(ctx context.Context) (all []platform.Guest, err error) {
	homes := map[int]string{}
	for id, g := range n.surveyed {
		if g.isVM() {
			homes[id] = g.Node
		}
	}
	found, err := n.removal.Client.GuestsOn(ctx, n.removal.Ownership.Range.IDs(), homes)
	for id := range found {
		all = append(all, platform.Guest{ID: id, Called: called(id)})
	}
	return all, err
}

func (n *nuke) Free(ctx context.Context, o platform.Orphan) error { return n.removal.Free(ctx, o) }

func (n *nuke) Advice(err error) string {
	address := n.removal.Client.session.Address
	switch KindOf(err) {
	case Other:
		return fmt.Sprintf("is %s the right endpoint (--endpoint, PROXMOX_VE_ENDPOINT), can it be reached "+
			"from here, and is its certificate known (--ca-file)?", address)
	case Unauthorized:
		return fmt.Sprintf("%s does not know the API token: set another in PROXMOX_VE_API_TOKEN", address)
	case Forbidden:
		return "the API token lacks a privilege: give it one, or set another in PROXMOX_VE_API_TOKEN"
	}
	return ""
}
