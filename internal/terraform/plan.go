package terraform

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/hashicorp/terraform-exec/tfexec"
	tfjson "github.com/hashicorp/terraform-json"
	"github.com/zclconf/go-cty/cty"
	ctyjson "github.com/zclconf/go-cty/cty/json"

	"github.com/ephemeral-castle/castle/internal/atomicfile"
	"github.com/ephemeral-castle/castle/internal/ownfile"
	"github.com/ephemeral-castle/castle/internal/terraform/planned"
)

// PlanOptions narrow a plan.
type PlanOptions struct {
	Destroy bool
	Targets []string // addresses; everything if empty
	Replace []string // addresses of resources to replace, whether they change or not
}

// Plan is a saved plan: one file that Apply reads, once. It holds the
// configuration, the state and every value in clear.
type Plan struct {
	File    string
	Changes []Change // in Terraform's order, without no-ops
	Empty   bool     // no resource and no output would change
	Drifted bool     // the refresh found resources that differ from their last apply
	Destroy bool

	root *Root
}

// Discard deletes the plan's file. Apply does so itself.
func (p *Plan) Discard() error { return ownfile.RemoveAll(p.File) }

// Plan saves a plan in the work directory. The changes are those of the JSON stream: showing the plan would
// start every provider again and return all values, secrets among them.
func (r *Root) Plan(ctx context.Context, o PlanOptions) (*Plan, error) {
	p := &Plan{File: r.workdir().planPath(), Destroy: o.Destroy, root: r}
	// Created first, so that it is never readable by others: Terraform keeps the mode.
	if err := errors.Join(p.Discard(), atomicfile.CreateUnflushed(p.File, nil, 0o600)); err != nil {
		return nil, err
	}
	options := []tfexec.PlanOption{tfexec.Out(p.File), tfexec.Destroy(o.Destroy)}
	for _, address := range o.Targets {
		options = append(options, tfexec.Target(address))
	}
	for _, address := range o.Replace {
		options = append(options, tfexec.Replace(address))
	}
	err := r.command(ctx, "plan", nil, func(tf *tfexec.Terraform, s *stream) error {
		changes, err := tf.PlanJSON(ctx, s, append(options, s.running)...)
		s.flush()
		p.Empty, p.Changes, p.Drifted = !changes, s.planned, s.drifted
		return err
	})
	if err != nil {
		return nil, errors.Join(err, p.Discard())
	}
	return p, nil
}

// Restore puts back a plan that was made in this work directory and kept elsewhere:
// the content of its file and its changes. A nil content is an empty plan.
func (r *Root) Restore(content []byte, changes []Change) (*Plan, error) {
	p := &Plan{File: r.workdir().planPath(), Changes: changes, Empty: content == nil, root: r}
	err := p.Discard()
	if content != nil {
		err = errors.Join(err, atomicfile.Write(p.File, content))
	}
	return p, err
}

// Apply applies exactly p and deletes it after every result: it serves once. A nil p also plans, in one step.
func (r *Root) Apply(ctx context.Context, p *Plan) (err error) {
	var options []tfexec.ApplyOption
	if p != nil {
		options = append(options, tfexec.DirOrPlan(p.File))
		defer func() { err = errors.Join(err, p.Discard()) }()
	}
	if err := r.beforeWrite(ctx); err != nil {
		return err
	}
	return r.command(ctx, "apply", nil, func(tf *tfexec.Terraform, s *stream) error {
		return tf.ApplyJSON(ctx, s, append(options, s.running)...)
	})
}

// show reads the whole plan, every value in clear. Nothing of it may be logged.
func (p *Plan) show(ctx context.Context, use func(*tfjson.Plan) error) error {
	return p.root.command(ctx, "show", nil, func(tf *tfexec.Terraform, s *stream) error {
		shown, err := tf.ShowPlanFile(ctx, p.File, s.running)
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
	UUID    string // of a machine, if the plan gives it one
}

// Objects returns the objects that p would create or change. It keeps names only.
func (p *Plan) Objects(ctx context.Context) (objects []Object, err error) {
	err = p.show(ctx, func(shown *tfjson.Plan) error {
		objects = p.root.objectsOf(shown)
		return nil
	})
	return objects, err
}

// Differences returns, by address, the attributes that p would change in place or that force a replacement.
// It also returns the resources that differ from their last apply, by address.
func (p *Plan) Differences(ctx context.Context) (changed map[string]planned.Attributes,
	drift map[string]planned.Drift, err error) {
	err = p.show(ctx, func(shown *tfjson.Plan) error {
		changed, drift = planned.ChangedAttributes(shown), planned.Drifted(shown)
		return nil
	})
	return changed, drift, err
}

func (r *Root) objectsOf(shown *tfjson.Plan) (objects []Object) {
	for _, c := range planned.Managed(shown.ResourceChanges) {
		action := ""
		switch actions := c.Change.Actions; {
		case actions.Create():
			action = "create"
		case actions.Replace():
			action = "replace"
		case actions.Update():
			action = "update"
		default:
			continue
		}
		o := Object{Address: c.Address, Type: c.Type, Action: action}
		o.ID, o.UUID = r.identity(c.Type, c.Change.After, c.Change.AfterUnknown)
		o.WasID, _ = r.identity(c.Type, c.Change.Before, nil)
		objects = append(objects, o)
	}
	return objects
}

// Outputs returns the outputs that an apply of p would leave, without null ones. known is false if one of
// them is known only after apply. They may be secret.
func (p *Plan) Outputs(ctx context.Context) (outputs map[string]cty.Value, known bool, err error) {
	err = p.show(ctx, func(shown *tfjson.Plan) (err error) {
		outputs, known, err = outputsOf(shown)
		return err
	})
	return outputs, known, err
}

func outputsOf(shown *tfjson.Plan) (outputs map[string]cty.Value, known bool, err error) {
	outputs, known = map[string]cty.Value{}, true
	if shown.PlannedValues == nil {
		return outputs, known, nil
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
		if err == nil && out.Type == cty.NilType {
			err = errors.New("no type")
		}
		if err == nil {
			outputs[name], err = ctyjson.Unmarshal(data, out.Type)
		}
		if err != nil { // its text could quote a secret
			return outputs, known, fmt.Errorf("output %s: does not match its type", name)
		}
	}
	return outputs, known, nil
}
