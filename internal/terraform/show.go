package terraform

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/hashicorp/terraform-exec/tfexec"
	tfjson "github.com/hashicorp/terraform-json"
	"github.com/zclconf/go-cty/cty"
	ctyjson "github.com/zclconf/go-cty/cty/json"
)

// show reads the whole plan, every value in clear. Nothing of it may be logged.
func (p *Plan) show(ctx context.Context, use func(*tfjson.Plan) error) error {
	return p.root.command(ctx, "show", nil, func(tf *tfexec.Terraform, _ *stream) error {
		shown, err := tf.ShowPlanFile(ctx, p.File)
		if err != nil {
			return err
		}
		return use(shown)
	})
}

// Object is the object that a plan would create or change for one resource instance.
type Object struct {
	Address string
	Type    string // helm_release
	Action  string // create, replace or update
	ID      string // for `terraform import`; empty if unknown
	WasID   string // the same of the object that it replaces or changes
}

// Objects returns the objects that p would create or change. It keeps names only.
func (p *Plan) Objects(ctx context.Context) ([]Object, error) {
	var objects []Object
	err := p.show(ctx, func(shown *tfjson.Plan) error {
		for _, c := range shown.ResourceChanges {
			o := Object{Address: c.Address, Type: c.Type}
			switch actions := c.Change.Actions; {
			case c.Mode != "managed":
				continue
			case actions.Create():
				o.Action = "create"
			case actions.Replace():
				o.Action = "replace"
			case actions.Update():
				o.Action = "update"
			default:
				continue
			}
			o.ID = importID(c.Type, c.Change.After, c.Change.AfterUnknown)
			o.WasID = importID(c.Type, c.Change.Before, nil)
			objects = append(objects, o)
		}
		return nil
	})
	return objects, err
}

// Outputs returns the outputs that an apply of p would leave, without those that are
// null. known is false if one of them is known after apply only. They may be secret.
func (p *Plan) Outputs(ctx context.Context) (outputs map[string]cty.Value, known bool, err error) {
	outputs, known = map[string]cty.Value{}, true
	err = p.show(ctx, func(shown *tfjson.Plan) error {
		if shown.PlannedValues == nil {
			return nil
		}
		for name, change := range shown.OutputChanges {
			if unknown, is := change.AfterUnknown.(bool); !is || unknown {
				known = false
			}
			out := shown.PlannedValues.Outputs[name]
			if out == nil || out.Value == nil {
				continue
			}
			data, err := json.Marshal(out.Value)
			if err == nil {
				outputs[name], err = ctyjson.Unmarshal(data, out.Type)
			}
			if err != nil { // its text could quote a secret
				return fmt.Errorf("output %s: does not match its type", name)
			}
		}
		return nil
	})
	return outputs, known, err
}

// ChangedAttributes returns, by address, the attributes that p would change in place or
// that force a replacement. Names only: the values may be secret.
func (p *Plan) ChangedAttributes(ctx context.Context) (map[string][]string, error) {
	names := map[string][]string{}
	err := p.show(ctx, func(shown *tfjson.Plan) error {
		for _, c := range shown.ResourceChanges {
			switch actions := c.Change.Actions; {
			case c.Mode != "managed":
			case actions.Replace():
				names[c.Address] = forcingReplacement(c.Change.ReplacePaths)
			case actions.Update():
				names[c.Address] = changedAttributes(c.Change.Before, c.Change.After, c.Change.AfterUnknown)
			}
		}
		return nil
	})
	return names, err
}

func forcingReplacement(paths []any) []string {
	found := map[string]bool{}
	for _, path := range paths {
		if steps, ok := path.([]any); ok && len(steps) > 0 {
			if name, ok := steps[0].(string); ok {
				found[name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

func changedAttributes(before, after, afterUnknown any) []string {
	was, _ := before.(map[string]any)
	is, _ := after.(map[string]any)
	unknown, _ := afterUnknown.(map[string]any)
	found := map[string]any{}
	maps.Copy(found, was)
	maps.Copy(found, is)
	maps.DeleteFunc(found, func(name string, _ any) bool { return reflect.DeepEqual(was[name], is[name]) })
	for name, v := range unknown {
		if v == true {
			found[name] = nil
		}
	}
	return slices.Sorted(maps.Keys(found))
}
