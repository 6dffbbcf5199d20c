package terraform

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"github.com/hashicorp/terraform-exec/tfexec"
)

// PlanOptions narrow a plan.
type PlanOptions struct {
	Destroy bool
	Targets []string // addresses; everything if empty
}

// Plan is a saved plan: one file that Apply reads, once. It holds the
// configuration, the state and every value in clear.
type Plan struct {
	File    string
	Changes []Change // in Terraform's order, without no-ops
	Empty   bool     // no resource and no output would change
	Destroy bool

	root *Root
}

// Discard deletes the plan's file. Apply does so itself.
func (p *Plan) Discard() error {
	if err := os.Remove(p.File); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Plan saves a plan in the work directory. The changes are those of the JSON
// stream: showing the plan would start every provider again and return all values,
// secrets among them.
func (r *Root) Plan(ctx context.Context, o PlanOptions) (*Plan, error) {
	p := &Plan{File: r.workdir().planPath(), Destroy: o.Destroy, root: r}
	// Created first, so that it is never readable by others: Terraform keeps the mode.
	if err := errors.Join(p.Discard(), writePrivate(p.File, nil)); err != nil {
		return nil, err
	}
	options := []tfexec.PlanOption{tfexec.Out(p.File), tfexec.Destroy(o.Destroy)}
	for _, address := range o.Targets {
		options = append(options, tfexec.Target(address))
	}
	err := r.command(ctx, "plan", nil, func(tf *tfexec.Terraform, s *stream) error {
		changes, err := tf.PlanJSON(ctx, s, options...)
		s.flush()
		p.Empty, p.Changes = !changes, s.planned
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
		err = errors.Join(err, writePrivate(p.File, content))
	}
	return p, err
}

// Apply applies exactly p and deletes it, whatever the result: a plan serves once. A
// nil p plans and applies in one go.
func (r *Root) Apply(ctx context.Context, p *Plan) (err error) {
	var options []tfexec.ApplyOption
	if p != nil {
		options = append(options, tfexec.DirOrPlan(p.File))
		defer func() { err = errors.Join(err, p.Discard()) }()
	}
	return r.command(ctx, "apply", nil, func(tf *tfexec.Terraform, s *stream) error {
		return tf.ApplyJSON(ctx, s, options...)
	})
}
