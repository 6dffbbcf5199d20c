// Package plugin is a small framework for stand-in Terraform providers: a schema is data, a
// resource is a schema with functions over its values, and the package speaks protocol 6 for both.
//
// Planning follows the rules of HashiCorp's framework. An absent argument takes its default. If the
// plan then equals the state, there is no change. Otherwise each computed value that the
// configuration does not set is unknown, except those marked Keep, which survive an update. A
// change to an attribute marked Replace replaces the object.
package plugin

import (
	"context"

	"github.com/zclconf/go-cty/cty"
)

// Provider is one provider: its own configuration and the types it serves.
type Provider struct {
	Schema Block
	// Configure receives the provider block; values may be unknown during a plan. Optional.
	Configure func(ctx context.Context, config Values) error
	Resources map[string]Resource
	Data      map[string]DataSource
}

// Resource is one managed resource type.
type Resource struct {
	Version int64 // of the schema
	Schema  Block
	// Legacy marks a provider whose real one is built on the old SDK. Its defaults may differ from
	// a configuration without the argument, and its results from the plan: Terraform then only logs
	// the difference.
	Legacy bool
	// Check validates rules across attributes; values may be unknown. Optional.
	Check func(config Values) error
	// Plan may change a plan that the rules of this package have made. It is
	// not called for a destroy. Optional.
	Plan func(ctx context.Context, p *Plan) error
	// Create makes the object and returns the computed values; the plan supplies the rest. If
	// Create returns values with an error, the state keeps them and the object is tainted.
	Create func(ctx context.Context, c Change) (Values, error)
	// Read returns the values that differ, or nil if the object is gone. If Read is nil, a refresh
	// keeps the state.
	Read   func(ctx context.Context, state Values) (Values, error)
	Update func(ctx context.Context, c Change) (Values, error)
	Delete func(ctx context.Context, state Values) error // Optional.
	Import func(ctx context.Context, id string) (Values, error)
}

// DataSource is one data source type.
type DataSource struct {
	Schema Block
	Check  func(config Values) error // as in Resource
	// Read returns the computed values; the configuration supplies the rest.
	Read func(ctx context.Context, config Values) (Values, error)
}

// Change is the argument of the functions that change an object. Prior is nil for a new object.
// Only Config holds write-only values.
type Change struct{ Prior, Planned, Config Values }

// Mode is the nesting mode of nested values.
type Mode int

// The modes.
const (
	Single Mode = iota
	List
	Set
	Map
)

// Block is a schema: of a provider, a resource, a data source or a nested block.
type Block struct {
	Attributes map[string]Attribute
	Blocks     map[string]NestedBlock
}

// NestedBlock is a block inside a block.
type NestedBlock struct {
	Block    Block
	Mode     Mode // Single, List or Set
	Min, Max int64
}

// Attribute is one argument or one computed value.
type Attribute struct {
	Type   cty.Type // absent where Nested is set
	Nested *Nested

	Required, Optional, Computed     bool
	Sensitive, WriteOnly, Deprecated bool

	Default cty.Value             // of an absent argument; one that is not Computed needs Legacy
	Keep    bool                  // an update does not change the computed value
	Replace bool                  // a change needs a new object
	Valid   func(cty.Value) error // judges a known value. Optional.
}

// Nested is an object, or a collection of objects, as an attribute's value.
type Nested struct {
	Mode       Mode
	Attributes map[string]Attribute
}

func (a Attribute) valueType() cty.Type {
	if a.Nested == nil {
		return a.Type
	}
	return a.Nested.Mode.of(Block{Attributes: a.Nested.Attributes}.Type())
}

// Type is the type of a value that has this schema.
func (b Block) Type() cty.Type {
	types := map[string]cty.Type{}
	for name, a := range b.Attributes {
		types[name] = a.valueType()
	}
	for name, n := range b.Blocks {
		types[name] = n.Mode.of(n.Block.Type())
	}
	return cty.Object(types)
}

func (m Mode) of(object cty.Type) cty.Type {
	switch m {
	case List:
		return cty.List(object)
	case Set:
		return cty.Set(object)
	case Map:
		return cty.Map(object)
	default:
		return object
	}
}
