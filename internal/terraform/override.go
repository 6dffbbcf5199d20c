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

// Override holds the files that castle adds to a module.
type Override struct {
	InCluster  []string             // source addresses of the providers that castle configures
	Kubeconfig string               // absolute path, for these providers
	Inputs     map[string]cty.Value // of the module's variables
	Kept       []byte               // instead of Inputs: a result of Root.Inputs; with neither, the file stays
}

// Inputs returns the file of the inputs of the module's variables, which holds secrets.
func (r *Root) Inputs() ([]byte, error) { return os.ReadFile(filepath.Join(r.Dir, inputsFile)) }

func (w workdir) writeOverride(o Override) error {
	text, err := w.override(o)
	if err != nil {
		return err
	}
	if err := atomicfile.Write(filepath.Join(w.dir, overrideFile), text); err != nil {
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
	return atomicfile.Write(filepath.Join(w.dir, inputsFile), values)
}

// override configures the backend and the providers of the cluster.
func (w workdir) override(o Override) ([]byte, error) {
	f := hclwrite.NewEmptyFile()
	f.Body().AppendNewBlock("terraform", nil).Body().
		AppendNewBlock("backend", []string{"local"}).Body().
		SetAttributeValue("path", cty.StringVal(w.statePath))
	names := w.localNames()
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

// localNames returns the module's names of its providers, by source address. A module
// that cannot be read has none here; Terraform will report its errors.
func (w workdir) localNames() map[string]string {
	names := map[string]string{}
	module, _ := tfconfig.LoadModule(w.dir)
	for name, required := range module.RequiredProviders {
		source := required.Source
		if source == "" {
			source = name
		}
		names[strings.ToLower(completed(source))] = name
	}
	return names
}

// inputs encodes values for a *.tfvars.json file, where each variable's type converts them.
func inputs(values map[string]cty.Value) ([]byte, error) {
	plain := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		v, _ := values[name].UnmarkDeep()
		if !v.IsWhollyKnown() {
			return nil, fmt.Errorf("input %s: known after apply only", name)
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
