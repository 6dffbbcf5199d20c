package gate

import (
	"context"

	"github.com/ephemeral-castle/castle/internal/event"
)

// Preflight is a PreflightType bound to known arguments.
type Preflight struct {
	Name string
	// Inspect reads and changes nothing. known lists the objects in the stage's state, so that a run
	// recognises them as its own. report receives the reason for each wait.
	Inspect func(ctx context.Context, known []Known, report func(string)) (Inspection, error)
	// Advice returns what a user should know before a create, such as a token's danger, or nothing. Optional.
	Advice func(context.Context) string
	// Revoke runs before a destroy deletes the objects in the state. It ends credentials that they issued
	// and removes blockers of their deletion, such as users that Vault has created in a database. report
	// receives each failure to revoke. Optional.
	Revoke func(ctx context.Context, known []Known, report func(string)) error
	// Replaced removes what the objects have admitted that a plan of a create deletes or replaces, such as
	// the device of a machine that is made anew. Optional.
	Replaced func(ctx context.Context, known []Known) error
	// Volumes lists the volumes that a controller in the cluster has made for the machines in the state. Of
	// these, Revoke deletes those that were settled with Delete. Optional.
	Volumes func(ctx context.Context, known []Known) ([]Volume, error)
	// Look reads one object while Terraform creates or deletes it. known has attributes if the object is in
	// the state. Optional.
	Look func(ctx context.Context, known Known) (Reading, error)
}

// The reclaim policies of Kubernetes.
const Delete, Retain = "Delete", "Retain"

// Volume is a volume that a controller in the cluster has made, and that no state has.
type Volume struct {
	PersistentVolume string // the driver and the handle of its PersistentVolume: csi.hetzner.cloud/42
	What             string // volume 42 "pvc-1", 10 GB, of the claim "default/data"
	Policy           string // that was settled; Retain, too, if it is protected; else empty
	Keep             string // the command that settles Retain
	// Settle records the policy with the volume, where a later run finds it if the cluster is gone.
	Settle func(ctx context.Context, policy string) error
}

// Reading is an object as Look has read it; zero if it does not exist.
type Reading struct {
	Own bool // it is the stage's
	// Foreign is set if it is not. Unsettled: it may still become the stage's own, while it is being created.
	Foreign   *Foreign
	Unsettled bool
	// Properties are those that a provider could change.
	Properties map[string]string
}

// Known is one resource instance in a stage's state.
type Known struct {
	Address    string // proxmox_virtual_environment_vm.node["cp-01"]
	Type       string // proxmox_virtual_environment_vm
	Attributes map[string]any
	// MachineID is its recorded identity; zero if there is none.
	MachineID MachineID
}

// MachineID distinguishes a machine from every other one that ever has its name and id. castle records it
// before the machine exists; that of a stage that plans no uuid, after the machine was created.
type MachineID struct {
	Address string `json:"address"`
	ID      string `json:"id"` // 421
	UUID    string `json:"uuid"`
	// Node is where the machine was when it was last on the node that the configuration names.
	Node string `json:"node,omitempty"`
	// Replaces is the uuid of the machine that this one is to replace. Until then it may have the id.
	Replaces string `json:"replaces,omitempty"`
	// Instance is the run that recorded the intent of its creation. It stays as long as the machine.
	Instance string `json:"instance,omitempty"`
	// Lease is the address that a DHCP server has given the machine first, if it has none of its own.
	Lease string `json:"lease,omitempty"`
}

// Inspection is the result of a preflight for the objects that the stage is to own.
type Inspection struct {
	// Foreign objects stand where the stage would build; the stage must not run.
	Foreign []Foreign
	// Unusable lists objects that the stage cannot build on, such as an offline node; a destroy ignores it.
	Unusable []Foreign
	// Unverified objects are in the state and cannot be inspected now. They stop a destroy, which would fail
	// half-way; a create goes on to its gates.
	Unverified []Foreign
	// Ours are proved to be the stage's own, but its state does not have them. They are imported before the
	// plan, if a killed run made them or the user confirms.
	Ours []Own
	// MachineIDs are the identities of the existing machines in the state.
	MachineIDs []MachineID
	// Lost are addresses in the state of objects that no longer belong to the stage, such as a machine that
	// was reset. castle untracks them.
	Lost []string
	// Detached are the disks that machines of the stage no longer have, and that still exist.
	Detached []Detached
	// Present names everything that exists now; after a destroy it must be empty.
	Present []string
	// Proof is the receipt's entry for objects that outlive the cluster, such as physical machines: whether
	// the stage has released them.
	Proof []event.OwnedObject
}

// Detached is a disk that somebody has taken from the machine at Address. Text says which, and the way out.
type Detached struct{ Address, Text string }

// Foreign is one object in the way, why it counts as somebody else's, and the fixes.
type Foreign struct {
	What  string   // VM 421 "prod-database" on node proxmox, running, no tags
	Why   string   // expected the name "blue-cp-01"
	Fixes []string // one sentence each: remove it in Proxmox
	// Import would make it the stage's own; nil if nothing could.
	Import *Import
	// ConflictsWith is the address in the state that has this ID and is another object.
	ConflictsWith string
	// Untrack is the address in the state to untrack if the object is gone for good.
	Untrack string
	// Unverified: it may be the stage's own, but nothing proves it now. It stops a destroy.
	Unverified bool
	// Marked: it looks like the stage's own, so that another state may record it.
	Marked bool
}

// Own is an object that lacks only an entry in the state to be the stage's own.
type Own struct {
	Import    Import
	AsForeign Foreign // how it is reported until somebody confirms it
	// Borrowed: it is where the stage would make it, and may be somebody else's. The stage uses it without a
	// confirmation, and a destroy leaves it.
	Borrowed bool
	// NewID: the system has given it its id when it was made, so no plan had it.
	NewID   bool
	Running bool // a machine that can answer
}

// Import tells Terraform that the resource at Address is the object with this ID.
type Import struct {
	Address, ID string
	What        string // VM 421 "blue-cp-01"
}
