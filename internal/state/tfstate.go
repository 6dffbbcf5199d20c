package state

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"

	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/zclconf/go-cty/cty"
	ctyjson "github.com/zclconf/go-cty/cty/json"
)

// State is the content of a Terraform state. castle reads the file itself, which takes
// microseconds, needs no provider and works when Terraform would not.
type State struct {
	Exists    bool   // false before the first apply
	Serial    uint64 // grows with every change
	Lineage   string // stays the same for the state's whole life
	Version   string // of the Terraform or OpenTofu that wrote it: "1.12.6"
	SHA256    string // of the file
	Outputs   map[string]Output
	Resources []Resource // in the file's order
	Notice    string     // what was repaired, in words for a person, or ""
}

// Output is one of a state's output values.
type Output struct {
	Value     cty.Value
	Sensitive bool
}

// Resource is one object in a state. Its JSON has no values.
type Resource struct {
	Address    string         `json:"address"`           // module.a.helm_release.b["c"], data.x.y
	Type       string         `json:"-"`                 // helm_release
	Block      string         `json:"-"`                 // helm_release.b
	Mode       string         `json:"mode"`              // managed or data
	Provider   string         `json:"provider"`          // registry.terraform.io/hashicorp/helm
	Tainted    bool           `json:"tainted,omitempty"` // made, but not wholly
	Deposed    bool           `json:"deposed,omitempty"` // replaced, but not yet deleted
	Attributes map[string]any `json:"-"`
}

// Managed returns the resources that Terraform owns, data sources left out.
func (s *State) Managed() []Resource {
	return slices.DeleteFunc(slices.Clone(s.Resources), func(r Resource) bool { return r.Mode != "managed" })
}

// Has reports whether the state knows the resource at an address; one that was
// only put aside for its replacement does not count.
func (s *State) Has(address string) bool {
	current := func(r Resource) bool { return r.Address == address && !r.Deposed }
	return slices.ContainsFunc(s.Resources, current)
}

// file is version 4 of the state format.
type file struct {
	Version int
	Serial  uint64
	Lineage string
	Outputs map[string]struct {
		Value, Type json.RawMessage
		Sensitive   bool
	}
	Resources []fileResource
	Encrypted json.RawMessage `json:"encrypted_data"`
	Terraform string          `json:"terraform_version"`
}

type fileResource struct {
	Module, Mode, Type, Name, Provider string

	Instances []struct {
		IndexKey        any `json:"index_key"`
		Status, Deposed string
		Attributes      map[string]any
	}
}

func parse(data []byte) (*State, error) {
	var f file
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, err
	}
	if f.Encrypted != nil {
		return nil, errors.New("OpenTofu has encrypted it, which castle cannot read: remove the block " +
			"encryption; castle encrypts states itself (docs/state.md)")
	}
	if f.Version != 4 {
		return nil, fmt.Errorf("version %d of the format; castle reads version 4", f.Version)
	}
	if f.Lineage == "" {
		return nil, errors.New("no lineage")
	}
	s := &State{
		Exists: true, Serial: f.Serial, Lineage: f.Lineage, Version: f.Terraform,
		SHA256: fmt.Sprintf("%x", sha256.Sum256(data)), Outputs: map[string]Output{},
	}
	for name, o := range f.Outputs {
		var v cty.Value
		t, err := ctyjson.UnmarshalType(o.Type)
		if err == nil {
			v, err = ctyjson.Unmarshal(o.Value, t)
		}
		if err != nil {
			return nil, fmt.Errorf("output %s: %w", name, err)
		}
		s.Outputs[name] = Output{Value: v, Sensitive: o.Sensitive}
	}
	for _, r := range f.Resources {
		for _, i := range r.Instances {
			s.Resources = append(s.Resources, Resource{
				Address: address(r, i.IndexKey), Type: r.Type, Block: r.Type + "." + r.Name,
				Provider: source(r.Provider), Mode: r.Mode,
				Tainted: i.Status == "tainted", Deposed: i.Deposed != "", Attributes: i.Attributes,
			})
		}
	}
	return s, nil
}

func address(r fileResource, key any) string {
	a := r.Type + "." + r.Name
	if r.Mode == "data" {
		a = "data." + a
	}
	if r.Module != "" {
		a = r.Module + "." + a
	}
	switch k := key.(type) {
	case string:
		// Quoted as Terraform quotes it, template markers included.
		a += "[" + string(hclwrite.TokensForValue(cty.StringVal(k)).Bytes()) + "]"
	case float64:
		a += fmt.Sprintf("[%d]", int(k))
	}
	return a
}

var providerSource = regexp.MustCompile(`provider\["(.*?)"\]`)

// source takes the address out of `module.a.provider["registry.terraform.io/hashicorp/helm"].alias`.
func source(provider string) string {
	if m := providerSource.FindStringSubmatch(provider); m != nil {
		return m[1]
	}
	return provider
}
