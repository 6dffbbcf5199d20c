package gate

import (
	"context"

	"github.com/zclconf/go-cty/cty"
)

// Attribute is one argument that a gate's or preflight's HCL block takes.
type Attribute struct {
	Type     cty.Type // the expression's value is converted to it
	Required bool
	Help     string // one sentence, for messages and documentation
	// Valid, when set, checks a known, non-null value and returns its problem.
	Valid func(cty.Value) error
}

// Target is the cluster that a gate checks, as its platform describes it. The configs are file contents;
// empty as long as no platform has output them.
type Target struct {
	Kubeconfig  []byte
	Talosconfig []byte
	// Environ is the caller's environment, which holds Infisical's credentials.
	Environ []string
}

// Type is one kind of gate. Every gate also has the attributes timeout, stable and needs.
type Type struct {
	Name       string // the block's first label: "endpoint_slice"
	Summary    string
	Attributes map[string]Attribute
	// Kubernetes and Talos report which of Target's files the gate reads. Either makes an edge from the
	// gate's stage to the platform.
	Kubernetes, Talos bool
	// Check, when set, checks the attributes together; values may be unknown.
	Check func(Values) error
	New   func(name string, target Target, values Values) (Gate, error)
}

// PreflightType is one kind of preflight: a check of the outside world that runs before a stage may change
// anything.
type PreflightType struct {
	Name       string // the block's first label: "vm_ids"
	Summary    string
	Attributes map[string]Attribute
	Check      func(Values) error // as in Type
	New        func(name string, target Target, values Values) (Preflight, error)
	// HasMachineIDs reports whether its inspections return MachineIDs: then it also runs after each apply.
	HasMachineIDs bool
}

// ExistsType is one kind of exists block. An adoption uses it to check that its object exists, where an
// import gives no clear answer or takes long.
type ExistsType struct {
	Name       string // the block's label: "talos_bootstrapped"
	Summary    string
	Attributes map[string]Attribute
	Check      func(Values) error // as in Type
	New        func(name string, target Target, values Values) (Exists, error)
}

// Exists is an ExistsType bound to known arguments.
type Exists struct {
	Name string
	// Object is the object that Lookup looks for, for the receipt of a destroy. It has no ID if it cannot
	// outlive its machines.
	Object Object
	// Lookup is one attempt, and changes nothing. known lists what the stage's state has. After an error
	// that is not Permanent it is repeated for a while.
	Lookup func(ctx context.Context, known []Known) (bool, error)
}

// Object is something outside of Terraform.
type Object struct {
	Kind string // Infisical secret, Namespace
	ID   string // its name, with its folder or namespace
	Fix  string // how to remove it by hand
}
