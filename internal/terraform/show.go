package terraform

import (
	"context"

	"github.com/hashicorp/terraform-exec/tfexec"
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
