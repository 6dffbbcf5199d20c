package gate

import "context"

// ExistsType is one kind of exists block: how an adoption finds out whether its
// object is there, where an import could not tell, or would take long to.
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
	// Object is what is asked for, so that a destroy can prove it gone by the same
	// question. No ID: the question is about no object that outlives its machines.
	Object Object
	// Ask is one attempt, and changes nothing. known lists what the stage's state
	// already has. An error is no answer: it is asked again for a while, unless
	// the error is Permanent.
	Ask func(ctx context.Context, known []Known) (bool, error)
}

// Object is something outside of Terraform, in words.
type Object struct {
	Kind string // Infisical secret, Namespace
	ID   string // its name, with the folder or the namespace that it is in
	Way  string // how to remove it by hand
}
