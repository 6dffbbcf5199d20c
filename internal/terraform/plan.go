package terraform

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

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
	Changes []Change // in Terraform's order, without what stays as it is
	Empty   bool     // no resource and no output would change
	Destroy bool
}

// Discard deletes the plan's file. Apply does so itself.
func (p *Plan) Discard() error {
	if err := os.Remove(p.File); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Plan saves a plan in the work directory. The changes are those of the JSON
// stream: asking Terraform to show the plan would start every provider again
// and bring back all values, secrets among them, for what the stream has said.
func (r *Root) Plan(ctx context.Context, o PlanOptions) (*Plan, error) {
	p := &Plan{File: r.planPath(), Destroy: o.Destroy}
	// Made first, so that it is never readable by others: Terraform keeps the mode.
	if err := errors.Join(p.Discard(), writePrivate(p.File, nil)); err != nil {
		return nil, err
	}
	options := []tfexec.PlanOption{tfexec.Out(p.File), tfexec.Destroy(o.Destroy)}
	for _, address := range o.Targets {
		options = append(options, tfexec.Target(address))
	}
	if r.Parallelism > 0 {
		options = append(options, tfexec.Parallelism(r.Parallelism))
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

// Restore puts a plan back that Plan made in this work directory and that was kept
// elsewhere since: the content of its file and its changes. Without content there
// was nothing to change.
func (r *Root) Restore(content []byte, changes []Change) (*Plan, error) {
	p := &Plan{File: r.planPath(), Changes: changes, Empty: content == nil}
	err := p.Discard()
	if content != nil {
		err = errors.Join(err, writePrivate(p.File, content))
	}
	return p, err
}

// Apply applies exactly p and deletes it, whatever comes of it: a plan serves
// once. A nil p plans and applies in one go.
func (r *Root) Apply(ctx context.Context, p *Plan) (err error) {
	var options []tfexec.ApplyOption
	if p != nil {
		options = append(options, tfexec.DirOrPlan(p.File))
		defer func() { err = errors.Join(err, p.Discard()) }()
	}
	if r.Parallelism > 0 {
		options = append(options, tfexec.Parallelism(r.Parallelism))
	}
	return r.command(ctx, "apply", nil, func(tf *tfexec.Terraform, s *stream) error {
		return tf.ApplyJSON(ctx, s, options...)
	})
}

// Import makes the object with the given id the resource at address. The error
// is ErrNoSuchObject if there is no such object.
func (r *Root) Import(ctx context.Context, address, id string) error {
	return r.command(ctx, "import", nil, func(tf *tfexec.Terraform, s *stream) error {
		tf.SetStdout(s)
		return tf.Import(ctx, address, id)
	})
}

// Forget removes resources from the state; what they stand for stays.
func (r *Root) Forget(ctx context.Context, addresses []string) error {
	for _, address := range addresses {
		err := r.command(ctx, "state rm", nil, func(tf *tfexec.Terraform, s *stream) error {
			tf.SetStdout(s)
			return tf.StateRm(ctx, address)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Exists reports whether there is an object that Import would make the resource at
// address. It is imported to a state of its own, of which nothing is kept.
func (r *Root) Exists(ctx context.Context, address, id string) (bool, error) {
	dir, err := os.MkdirTemp(r.Dir, ".looking-") // for its owner alone: it may hold secrets
	if err != nil {
		return false, err
	}
	err = r.command(ctx, "import", nil, func(tf *tfexec.Terraform, s *stream) error {
		tf.SetStdout(s)
		//lint:ignore SA1019 the state that is asked for is no other state of the backend's, and goes at once
		return tf.Import(ctx, address, id, tfexec.State(filepath.Join(dir, "terraform.tfstate")))
	})
	removed := os.RemoveAll(dir)
	if errors.Is(err, ErrNoSuchObject) {
		return false, removed
	}
	return err == nil, errors.Join(err, removed)
}
