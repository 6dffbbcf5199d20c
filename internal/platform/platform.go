// Package platform is what castle may ask of the platform that a cluster's machines stand on: what Terraform
// has made there, whether that is gone, and whose it is. A platform is one folder below this package, a line
// in package all, and the stages that make its machines. The rest of castle knows no platform.
package platform

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/siderolabs/gen/xslices"
	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/doctor/finding"
	"github.com/ephemeral-castle/castle/internal/effect"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/revision"
	"github.com/ephemeral-castle/castle/internal/terraform"
	"github.com/ephemeral-castle/castle/internal/terraform/planned"
)

// Platform is a kind of datacenter.
type Platform interface {
	// Name is what people call it: Proxmox.
	Name() string
	// Preflights are the preflights that ask it.
	Preflights() []gate.PreflightType
	// MachinePreflight is the name of the one that a stage which makes machines has.
	MachinePreflight() string
	// Revisions reads the revisions of its objects.
	Revisions() revision.System

	Resources
	Accounts
}

// Resources reads the platform's resources in Terraform's states and plans. It makes no request.
type Resources interface {
	// ObjectsOf lists the objects of resources; those of other platforms have none.
	ObjectsOf(known []gate.Known) []Object
	// Owns reports whether resources of a type own objects.
	Owns(typ string) bool
	// FileID is the id by which Terraform imports the file that a resource stands for; empty for others.
	FileID(k gate.Known) string
	// FileOf is the file that Terraform imports by an id, for a type that castle looks up.
	FileOf(typ, id string) (Object, bool)
	// MachineID returns the id of the guest that a resource stands for, 0 where the state lacks it, and
	// whether it stands for one at all.
	MachineID(typ string, attributes map[string]any) (id int, isMachine bool)
	// Identities tell how a plan identifies objects, by type.
	Identities() map[string]terraform.Identity
	// IsMachine reports whether castle's stages make their machines with resources of a type.
	IsMachine(typ string) bool
	// FoundByPreflights reports whether preflights find the objects of a type that an interrupted run was
	// creating; others are looked up by their ids.
	FoundByPreflights(typ string) bool
	// Effects returns what a change of a machine's resource does to the machine while it runs. was are its
	// attributes; replaces: Terraform replaces it, because of the differences.
	Effects(was map[string]any, replaces bool, differences []planned.Difference) []effect.Effect
	// Describe names the machine of a resource, "VM 421 on node pve", and its disks with their sizes.
	Describe(attributes map[string]any) (machine string, disks []string)
	// LacksMachines reports whether its preflight checks a machine that is none of the known resources.
	LacksMachines(v gate.Values, known []gate.Known) bool
	// Remedy is how an object is removed by hand.
	Remedy(o Object) string
}

// Accounts reaches a datacenter.
type Accounts interface {
	// Account returns the one of a preflight's values, and the ids of the machines that it checks, if any.
	Account(v gate.Values) (Account, []int, error)
	// Environment is the account of the Terraform provider's environment; its fields may be empty.
	Environment(environ []string) Account
	// Variables are the environment variables that hold an address and a token.
	Variables() (endpoint, token string)
	// CheckToken checks the form of a token. The error has a correct example, and not the token.
	CheckToken(token string) error
	// SameEndpoint reports whether two addresses are those of the same datacenter.
	SameEndpoint(a, b string) bool
	// Open makes a client. It makes no request.
	Open(a Account) (Datacenter, error)
	// Nuke makes the client of a nuke. It makes no request. note gets every step before its request is sent:
	// its line for the journal, and its text for the user, if it has one. If it fails, nothing more is done.
	Nuke(a Account, m Signs, note func(line any, text string) error) (Nuke, error)
	// Checks are doctor's checks of the datacenter of a stage's machines.
	Checks(s Subject) []finding.Check
}

// Datacenter answers what castle asks before, between and after Terraform's own requests.
type Datacenter interface {
	// Name is that of its platform.
	Name() string
	// Admitted returns an error unless the datacenter accepts the token: ErrRefused if it does not know it.
	Admitted(ctx context.Context) error
	// TokenExpiry returns when the token expires, zero: never, and how to change that.
	TokenExpiry(ctx context.Context) (expires time.Time, fix string, err error)
	// Gone checks whether objects are gone, and each other disk of a machine among them. It waits for tasks
	// that work on objects that exist, and reports each reason to wait once. An object that could not be
	// checked is not gone. The error is that of a context that has ended.
	Gone(ctx context.Context, all []Object, report func(string)) ([]event.OwnedObject, error)
	// Now is Gone without waiting.
	Now(ctx context.Context, all []Object) []event.OwnedObject
	// Facts reads how the machines among known are now: where, whether they run, and what has changed since.
	Facts(ctx context.Context, known []gate.Known) ([]Fact, error)
	// Restart stops a machine and starts it again, which brings its pending changes into force: a reboot
	// inside it keeps the old process with its old hardware. It asks the guest to shut down first, and stops
	// one that takes too long. One that is off is started. It returns when the machine runs and nothing is
	// pending. The uuid, else the hardware addresses, prove the machine: another one with its id is not
	// touched. say gets what happens: "VM 424 shuts down". The same call completes one that was interrupted.
	Restart(ctx context.Context, machine Object, say func(string)) error
	// Complete adds the objects of the machines among all that are in no state, and returns machines that
	// have moved, and their disks, with the nodes where they are.
	Complete(ctx context.Context, all []Object) []Object
	// Blocked lists the machines among all that the datacenter would not delete now, with why and the remedy.
	Blocked(ctx context.Context, all []Object) ([]event.OwnedObject, error)
	// FileUser returns a guest that may use a file and is none of own, the machines of the state that made
	// the file; empty if there is none that the token can see.
	FileUser(ctx context.Context, cluster, volume string, own []Object) (string, error)
	// Costs are those of what a machine preflight's stage makes; nil where the platform has no prices.
	Costs(ctx context.Context, v gate.Values) (*Costs, error)
	// Unrecorded lists the machines that a nuke would delete as this cluster's, or that have the uuid of a
	// known resource, and that are none of the known ones. unseen are ids among the values' that a guest of
	// an unknown owner has.
	Unrecorded(ctx context.Context, cluster string, v gate.Values, known []gate.Known) (
		machines []Guest, unseen []int, err error)
}

// Costs are prices without VAT, and without what depends on use, such as traffic.
type Costs struct {
	Currency string     `json:"currency"` // EUR
	Hourly   float64    `json:"hourly"`
	Monthly  float64    `json:"monthly"` // at most
	Items    []CostItem `json:"items"`
	Unpriced []string   `json:"unpriced,omitempty"` // of which the platform tells no price
}

// CostItem are the costs of some resources that are alike.
type CostItem struct {
	What    string  `json:"what"` // server cx33 in fsn1
	Count   int     `json:"count"`
	Hourly  float64 `json:"hourly"`
	Monthly float64 `json:"monthly"`
}

// Subject is a stage that makes machines, as doctor checks it.
type Subject struct {
	Cluster  string
	Machines Bound   // its machine preflight
	Others   []Bound // the other preflights of the platform, of every stage
	Unread   string  // why values of the secrets layer are not known
	Create   string  // the command that creates the cluster
	// Known are the resources of the stage's state.
	Known func() ([]gate.Known, error)
	// Inspect runs a preflight once; free is the finding if nothing exists yet.
	Inspect func(ctx context.Context, b Bound, free string) []finding.Finding
}

// Bound is a stage's preflight, with those of its values and of the stage's inputs that are known.
type Bound struct {
	Stage     *config.Stage
	Preflight *config.Preflight
	Values    gate.Values
	Inputs    map[string]cty.Value
}

// Set are the platforms that castle knows.
type Set []Platform

// Of returns the platform that a type of preflight asks; nil if it asks none.
func (s Set) Of(preflight string) Platform {
	return s.find(func(p Platform) bool {
		isIt := func(t gate.PreflightType) bool { return t.Name == preflight }
		return slices.ContainsFunc(p.Preflights(), isIt)
	})
}

// OfMachines returns the platform whose machines a type of preflight checks; nil if there is none.
func (s Set) OfMachines(preflight string) Platform {
	return s.find(func(p Platform) bool { return p.MachinePreflight() == preflight })
}

// Owner returns the platform in which resources of a type own objects; nil if they own none.
func (s Set) Owner(typ string) Platform {
	return s.find(func(p Platform) bool { return p.Owns(typ) })
}

// IsMachine reports whether resources of a type are machines.
func (s Set) IsMachine(typ string) bool { return s.OfResource(typ) != nil }

// OfResource returns the platform whose machines resources of a type are; nil if they are none.
func (s Set) OfResource(typ string) Platform {
	return s.find(func(p Platform) bool { return p.IsMachine(typ) })
}

// FoundByPreflights reports whether preflights find objects of a type, as Resources does.
func (s Set) FoundByPreflights(typ string) bool {
	return s.find(func(p Platform) bool { return p.FoundByPreflights(typ) }) != nil
}

func (s Set) find(fits func(Platform) bool) Platform {
	if i := slices.IndexFunc(s, fits); i >= 0 {
		return s[i]
	}
	return nil
}

// ObjectsOf lists the objects of resources of every platform.
func (s Set) ObjectsOf(known []gate.Known) (all []Object) {
	return xslices.FlatMap(s, func(p Platform) []Object { return p.ObjectsOf(known) })
}

// FileID is the id by which Terraform imports the file that a resource stands for; empty for others.
func (s Set) FileID(k gate.Known) string {
	for _, p := range s {
		if id := p.FileID(k); id != "" {
			return id
		}
	}
	return ""
}

// MachineID returns the id of the guest that a resource stands for, as Resources does.
func (s Set) MachineID(typ string, attributes map[string]any) (id int, isMachine bool) {
	for _, p := range s {
		if id, isMachine = p.MachineID(typ, attributes); isMachine {
			return id, true
		}
	}
	return 0, false
}

// Object is the object in a datacenter of a resource in a Terraform state, which must be gone after a
// destroy. castle records it first, because the state loses it.
type Object struct {
	Kind string `json:"kind"`           // machine, disk, image, snippet, file, HA resource or HA rule
	Node string `json:"node,omitempty"` // where it was
	VM   int    `json:"vm,omitempty"`   // the machine's id; a disk's owner
	// UUID, MACs and Name tell a machine from another one that has got its id since.
	UUID   string   `json:"uuid,omitempty"`
	Was    string   `json:"was,omitempty"` // the uuid of the machine that this one replaces
	Name   string   `json:"name,omitempty"`
	MACs   []string `json:"macs,omitempty"`
	Volume string   `json:"volume,omitempty"` // local-lvm:vm-421-disk-0, local:import/talos.qcow2, vm:421
	Left   bool     `json:"left,omitempty"`   // it may stay: a user has had castle untrack it
}

// The kinds of Objects.
const (
	Machine = "machine"
	Disk    = "disk"
	Image   = "image"
	Snippet = "snippet"
	File    = "file"
	// What keeps machines running: Proxmox' high availability of one, and a rule for several.
	HAResource = "HA resource"
	HARule     = "HA rule"
)

// IsFile reports whether the object is an image, a snippet or another file.
func (o Object) IsFile() bool {
	return !slices.Contains([]string{Machine, Disk, HAResource, HARule}, o.Kind)
}

// ID is the object's name in the datacenter.
func (o Object) ID() string {
	if o.Kind == Machine {
		return fmt.Sprint(o.VM)
	}
	return o.Volume
}

func (o Object) same(p Object) bool {
	return o.Kind == p.Kind && o.VM == p.VM && o.Volume == p.Volume
}

// Merge adds more to all. The newer record of an object replaces the older: a replaced machine keeps its id.
func Merge(all []Object, more ...Object) []Object {
	for _, o := range more {
		i := slices.IndexFunc(all, func(p Object) bool {
			return p.same(o) && (p.Node == o.Node || p.Kind == Machine)
		})
		if i >= 0 {
			all[i] = o
		} else {
			all = append(all, o)
		}
	}
	return all
}

// Without removes objects that castle no longer tracks, and the disks of machines among them. A disk
// without its machine is only marked: the machine's id would find it again.
func Without(all []Object, untracked ...Object) []Object {
	var left []Object
	for _, o := range all {
		same := func(u Object) bool { return u.same(o) && u.Node == o.Node }
		its := func(u Object) bool { return u.Kind == Machine && u.VM == o.VM }
		named := slices.ContainsFunc(untracked, same)
		if o.Kind != Disk && named || o.Kind == Disk && slices.ContainsFunc(untracked, its) {
			continue
		}
		o.Left = o.Left || named
		left = append(left, o)
	}
	return left
}

// Account is how a datacenter is reached.
type Account struct {
	Endpoint string // https://host:8006; a path is ignored
	Token    string // a secret: user@realm!name=secret
	CA       string // a PEM certificate, or the path of one, that is trusted besides the system's
	Insecure bool   // accept any certificate
}

// ErrRefused is the error of a datacenter that does not know the token.
var ErrRefused = errors.New("the datacenter refuses the token")

// Source is a place that may hold the token of a datacenter.
type Source struct {
	Name string // in messages: the configuration's
	// Account reads it. An empty endpoint is the wanted one; an empty token is not set.
	Account func(ctx context.Context) (Account, error)
}

// Accepted returns the first account that a datacenter accepts, and the name of its source. It shows a token
// to the datacenter at endpoint alone, and each token once. accept makes a request with the account; any
// error but ErrRefused ends the search. If none is accepted, the name is empty and tried says why, by source.
func Accepted(ctx context.Context, p Platform, endpoint string, sources []Source,
	accept func(context.Context, Account) error) (a Account, name string, tried []string, err error) {
	shown := map[string]bool{}
	for _, s := range sources {
		a, err := s.Account(ctx)
		switch {
		case ctx.Err() != nil:
			return a, "", tried, context.Cause(ctx)
		case err != nil:
		case a.Token == "":
			err = errors.New("not set")
		case shown[a.Token]:
			err = errors.New("the same token")
		case a.Endpoint != "" && endpoint != "" && !p.SameEndpoint(a.Endpoint, endpoint):
			err = fmt.Errorf("for %s, not for %s", a.Endpoint, endpoint)
		default:
			if err = p.CheckToken(a.Token); err != nil {
				break
			}
			shown[a.Token] = true
			a.Endpoint = cmp.Or(a.Endpoint, endpoint)
			if err = accept(ctx, a); !errors.Is(err, ErrRefused) {
				return a, s.Name, tried, err
			}
		}
		tried = append(tried, fmt.Sprintf("%s: %v", s.Name, err))
	}
	return a, "", tried, nil
}
