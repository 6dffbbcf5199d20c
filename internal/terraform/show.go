package terraform

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/hashicorp/terraform-exec/tfexec"
	"github.com/zclconf/go-cty/cty"
	ctyjson "github.com/zclconf/go-cty/cty/json"
)

// Object is what a plan would make of one resource instance, as far as the plan
// knows what it is called outside of Terraform.
type Object struct {
	Address string
	Type    string // helm_release
	Action  string // create, replace or update
	ID      string // what `terraform import` takes it by; empty if that is not known
	WasID   string // the same of what it replaces or changes
}

// Objects tells which objects p would make or change. To show a plan brings back
// every value in clear: nobody but this hears it, and names are all that is kept.
func (r *Root) Objects(ctx context.Context, p *Plan) ([]Object, error) {
	var objects []Object
	err := r.command(ctx, "show", nil, func(tf *tfexec.Terraform, _ *stream) error {
		shown, err := tf.ShowPlanFile(ctx, p.File)
		if err != nil {
			return err
		}
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
			o.ID, o.WasID = importID(c.Type, c.Change.After, c.Change.AfterUnknown), importID(c.Type, c.Change.Before, nil)
			objects = append(objects, o)
		}
		return nil
	})
	return objects, err
}

// Outputs are the outputs that an apply of p would leave; of one that is null there
// is none. known is false if only the apply can tell one of them. They may be secret.
func (r *Root) Outputs(ctx context.Context, p *Plan) (outputs map[string]cty.Value, known bool, err error) {
	outputs, known = map[string]cty.Value{}, true
	err = r.command(ctx, "show", nil, func(tf *tfexec.Terraform, _ *stream) error {
		shown, err := tf.ShowPlanFile(ctx, p.File)
		if err != nil || shown.PlannedValues == nil {
			return err
		}
		for name, change := range shown.OutputChanges {
			if open, is := change.AfterUnknown.(bool); !is || open {
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
			if err != nil {
				return fmt.Errorf("output %s: not as its type says", name) // the parser's words could quote a secret
			}
		}
		return nil
	})
	return outputs, known, err
}
