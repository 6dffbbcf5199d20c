package terraform

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/hashicorp/terraform-config-inspect/tfconfig"
	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/atomicfile"
)

// Override is what castle adds to a module.
type Override struct {
	InCluster  []string             // source addresses of the providers whose block castle writes
	Kubeconfig string               // absolute path that those blocks name
	Inputs     map[string]cty.Value // of the module's variables
	Kept       []byte               // instead of Inputs: what Root.Inputs once returned; with neither, what is there stays
}

// Inputs returns the inputs of the module's variables that the last Materialise
// was given, or found. Whoever keeps them keeps secrets.
func (r *Root) Inputs() ([]byte, error) { return os.ReadFile(filepath.Join(r.Dir, inputsFile)) }

func (r *Root) writeOverride(o Override) error {
	text, err := r.override(o)
	if err != nil {
		return err
	}
	if err := atomicfile.Write(filepath.Join(r.Dir, overrideFile), text); err != nil {
		return err
	}
	values := o.Kept
	if o.Inputs != nil {
		if values, err = inputs(o.Inputs); err != nil {
			return err
		}
	}
	if values == nil {
		return nil
	}
	return atomicfile.Write(filepath.Join(r.Dir, inputsFile), values)
}

// override says where the state is and how to reach the cluster.
func (r *Root) override(o Override) ([]byte, error) {
	f := hclwrite.NewEmptyFile()
	f.Body().AppendNewBlock("terraform", nil).Body().
		AppendNewBlock("backend", []string{"local"}).Body().
		SetAttributeValue("path", cty.StringVal(r.StatePath))
	names := r.localNames()
	for _, source := range o.InCluster {
		name, ok := names[source]
		if !ok {
			name = path.Base(source)
		}
		f.Body().AppendNewline()
		body := f.Body().AppendNewBlock("provider", []string{name}).Body()
		config := cty.StringVal(o.Kubeconfig)
		switch source {
		case "registry.terraform.io/hashicorp/helm":
			// An attribute since helm 3; it was a block before.
			body.SetAttributeValue("kubernetes", cty.ObjectVal(map[string]cty.Value{"config_path": config}))
		case "registry.terraform.io/hashicorp/kubernetes":
			body.SetAttributeValue("config_path", config)
		default:
			return nil, fmt.Errorf("provider %s: castle cannot write its block", source)
		}
	}
	return f.Bytes(), nil
}

// localNames returns what the module calls its providers, by source address.
// What cannot be read has no names here; Terraform will say what is wrong with it.
func (r *Root) localNames() map[string]string {
	names := map[string]string{}
	module, _ := tfconfig.LoadModule(r.Dir)
	for name, required := range module.RequiredProviders {
		source := required.Source
		switch strings.Count(source, "/") {
		case 0:
			source = "registry.terraform.io/hashicorp/" + name
		case 1:
			source = "registry.terraform.io/" + source
		}
		names[strings.ToLower(source)] = name
	}
	return names
}

// inputs writes values as Terraform reads them from a *.tfvars.json file, where
// each variable's own type says what they become.
func inputs(values map[string]cty.Value) ([]byte, error) {
	plain := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		v, _ := values[name].UnmarkDeep()
		if !v.IsWhollyKnown() {
			return nil, fmt.Errorf("input %s: not known yet", name)
		}
		p, err := toJSON(v)
		if err != nil {
			return nil, fmt.Errorf("input %s: %w", name, err)
		}
		plain[name] = p
	}
	return json.MarshalIndent(plain, "", "  ")
}

// toJSON drops the types: go-cty's own JSON would write some values together with theirs.
func toJSON(v cty.Value) (any, error) {
	t := v.Type()
	switch {
	case v.IsNull():
		return nil, nil
	case t == cty.String:
		return v.AsString(), nil
	case t == cty.Bool:
		return v.True(), nil
	case t == cty.Number:
		return json.Number(v.AsBigFloat().Text('f', -1)), nil
	case t.IsMapType() || t.IsObjectType():
		fields := map[string]any{}
		for name, field := range v.AsValueMap() {
			var err error
			if fields[name], err = toJSON(field); err != nil {
				return nil, err
			}
		}
		return fields, nil
	case t.IsListType() || t.IsSetType() || t.IsTupleType():
		items := []any{}
		for _, item := range v.AsValueSlice() {
			p, err := toJSON(item)
			if err != nil {
				return nil, err
			}
			items = append(items, p)
		}
		return items, nil
	}
	return nil, errors.New("a " + t.FriendlyName() + " cannot be an input")
}
