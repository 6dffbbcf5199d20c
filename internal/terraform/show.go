package terraform

import (
	"context"

	"github.com/hashicorp/terraform-exec/tfexec"
)

// Object is what a resource is called in its cluster.
type Object struct{ Namespace, Name string }

// Objects tells which objects p would make or change with resources of one type,
// as far as the plan knows what they are called. To show a plan brings back every
// value in clear: nobody but this hears it, and names are all that is kept.
func (r *Root) Objects(ctx context.Context, p *Plan, kind string) ([]Object, error) {
	var objects []Object
	err := r.command(ctx, "show", nil, func(tf *tfexec.Terraform, _ *stream) error {
		shown, err := tf.ShowPlanFile(ctx, p.File)
		if err != nil {
			return err
		}
		for _, c := range shown.ResourceChanges {
			actions := c.Change.Actions
			if c.Type != kind || c.Mode != "managed" || !actions.Create() && !actions.Update() && !actions.Replace() {
				continue
			}
			var o Object
			if after, ok := c.Change.After.(map[string]any); ok {
				o.Namespace, _ = after["namespace"].(string)
				o.Name, _ = after["name"].(string)
			}
			if o.Namespace != "" && o.Name != "" { // else it is not known yet
				objects = append(objects, o)
			}
		}
		return nil
	})
	return objects, err
}
