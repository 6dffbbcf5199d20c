package gate

import (
	"context"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/event"
)

// Attribute is one argument that a gate's or preflight's HCL block takes.
type Attribute struct {
	Type     cty.Type // what the expression's value is converted to
	Required bool
	Help     string // one sentence, for messages and documentation
	// Valid, when set, judges a known, non-null value and returns what is wrong with it.
	Valid func(cty.Value) error
}

// Target is where a gate looks: the cluster as its platform describes it.
// The configs are file contents; empty where no platform has said them yet.
type Target struct {
	Kubeconfig  []byte
	Talosconfig []byte
	// Environ is the caller's environment, for what Terraform's providers take
	// from there too: Infisical's credentials.
	Environ []string
}

// Type is one kind of gate: its block and how to make the gate from it. The
// attributes timeout, stable and needs belong to every gate and are not listed.
type Type struct {
	Name       string // the block's first label: "endpoint_slice"
	Summary    string
	Attributes map[string]Attribute
	// Kubernetes and Talos say which of Target's files the gate reads. Either
	// makes an edge from the gate's stage to the platform.
	Kubernetes, Talos bool
	// Check judges what no single attribute can; values may be unknown. Optional.
	Check func(Values) error
	New   func(name string, target Target, values Values) (Gate, error)
}

// PreflightType is one kind of preflight: a check of the outside world that
// runs before a stage may change anything.
type PreflightType struct {
	Name       string // the block's first label: "vm_ids"
	Summary    string
	Attributes map[string]Attribute
	Check      func(Values) error // as in Type
	New        func(name string, target Target, values Values) (Preflight, error)
	// Marks says that its findings have marks: it is asked after each apply, too.
	Marks bool
}

// Preflight is a PreflightType bound to known arguments.
type Preflight struct {
	Name string
	// Inspect looks and changes nothing. known lists what the stage's state
	// already has, so that a run may find its own things again. report is told
	// what it waits for, if it has to.
	Inspect func(ctx context.Context, known []Known, report func(string)) (Findings, error)
	// Revoke comes before a destroy deletes what the state knows: it ends what the
	// things gave out and what would hold them back, such as the users that Vault has
	// made in a database. report is told what could not be ended properly. Optional.
	Revoke func(ctx context.Context, known []Known, report func(string)) error
}

// Known is one resource instance in a stage's state.
type Known struct {
	Address    string // proxmox_virtual_environment_vm.node["cp-01"]
	Type       string // proxmox_virtual_environment_vm
	Attributes map[string]any
	// Mark is what Findings.Marks said when castle last had it before its eyes;
	// zero if nobody did.
	Mark Mark
}

// Mark tells a thing from every other that gets its name and its id later on.
type Mark struct {
	Address string `json:"address"`
	ID      string `json:"id"` // 421
	UUID    string `json:"uuid"`
}

// Findings is what a preflight saw of the things that the stage is to own.
type Findings struct {
	// Foreign things stand where the stage would build; the stage must not run.
	Foreign []Foreign
	// Unfit is what the stage cannot build on, such as a node that is offline. It
	// stops a create; to a destroy it is nothing.
	Unfit []Foreign
	// Unseen are things that the state knows and nobody can look at now. They stop a
	// destroy, which would fail half-way; a create goes on, and its gates judge.
	Unseen []Foreign
	// Ours look like the stage's own in every way, but its state does not know
	// them. They are imported before the stage is planned, if castle made them or
	// the user says so.
	Ours []Own
	// Marks are those of what the state knows and what is there.
	Marks []Mark
	// Lost are addresses in the state of things that are there and not the stage's
	// any more, such as a machine that was reset. They are forgotten: a create makes
	// them the stage's anew, and a destroy has nothing to do.
	Lost []string
	// Present names everything that exists now, known to the state or not.
	// After a destroy it must be empty.
	Present []string
	// Proof is what a receipt says of things that outlive the cluster, such as
	// machines that nobody deletes: whether the stage has left them.
	Proof []event.Thing
}

// Foreign is one thing in the way: what it is, why it counts as somebody else's
// and how to get out.
type Foreign struct {
	What string   // VM 421 "prod-database" on node proxmox, running, no tags
	Why  string   // castle's own would be called "blue-cp-01"
	Ways []string // ways out, one sentence each: remove it in Proxmox
	// Import would make it the stage's own, if it is that after all; nil if
	// nothing could.
	Import *Import
	// Mistaken is the address in the state that has the same ID but stands for
	// another thing; Terraform would take this one for it. Empty if there is none.
	Mistaken string
	// Nuke is the range of ids with which castle nuke would take it; empty if it
	// would not.
	Nuke string
	// Forget is the address in the state that stands for it, for the user to
	// forget if it is gone for good; empty if there is none.
	Forget string
	// Unsure says that it may be the stage's own, but that nobody can look at it
	// now: a destroy must not go past it either.
	Unsure bool
}

// Own is a thing that only the state is missing to be the stage's own.
type Own struct {
	Import
	Unclaimed Foreign // what it is as long as nobody claims it
}

// Import tells Terraform that the resource at Address is the thing with this ID.
type Import struct {
	Address, ID string
	What        string // VM 421 "blue-cp-01"
}
