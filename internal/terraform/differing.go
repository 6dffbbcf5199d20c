package terraform

import (
	"context"
	"maps"
	"reflect"
	"slices"

	"github.com/hashicorp/terraform-exec/tfexec"
)

// Differing names, by address, the attributes that p would change in place, or
// for which it would replace a resource. Names only: the values may be secret.
func (r *Root) Differing(ctx context.Context, p *Plan) (map[string][]string, error) {
	names := map[string][]string{}
	err := r.command(ctx, "show", nil, func(tf *tfexec.Terraform, _ *stream) error {
		shown, err := tf.ShowPlanFile(ctx, p.File)
		if err != nil {
			return err
		}
		for _, c := range shown.ResourceChanges {
			switch actions := c.Change.Actions; {
			case c.Mode != "managed":
			case actions.Replace():
				names[c.Address] = replacing(c.Change.ReplacePaths)
			case actions.Update():
				names[c.Address] = differing(c.Change.Before, c.Change.After, c.Change.AfterUnknown)
			}
		}
		return nil
	})
	return names, err
}

// replacing are the attributes that cannot be changed in place.
func replacing(paths []any) []string {
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

func differing(was, willBe, open any) []string {
	before, _ := was.(map[string]any)
	after, _ := willBe.(map[string]any)
	unknown, _ := open.(map[string]any)
	found := map[string]bool{}
	for name := range before {
		found[name] = !reflect.DeepEqual(before[name], after[name])
	}
	for name := range after {
		found[name] = !reflect.DeepEqual(before[name], after[name])
	}
	for name, is := range unknown {
		if is == true {
			found[name] = true
		}
	}
	maps.DeleteFunc(found, func(_ string, differs bool) bool { return !differs })
	return slices.Sorted(maps.Keys(found))
}
