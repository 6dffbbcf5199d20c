package castle

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/state"
)

// RecreateOptions sharpen a recreate.
type RecreateOptions struct {
	Rotate   bool // what the secrets layer made goes too
	Graceful bool // delete what is in the cluster properly before the cluster goes
	Refresh  bool // apply even what is up to date
}

func (o RecreateOptions) destroy() DestroyOptions {
	return DestroyOptions{Graceful: o.Graceful, KeepSecrets: !o.Rotate}
}

// Recreation is what a recreate would raze before it raises the cluster anew.
type Recreation struct {
	Doomed     []*Doomed
	Kept       []string // stages of the secrets layer that stay
	Persistent []string
	// Razed is when the recreate began that has razed already and goes on with
	// raising; zero if there is none. Nothing is doomed then.
	Razed time.Time

	options RecreateOptions
}

// Recreation returns what Recreate would do. A recreate that has razed what was
// to go, and was then cut short, goes on with raising: what stands is its own.
// Only one that is to rotate, and did not then, has to raze again.
func (c *Castle) Recreation(o RecreateOptions) (*Recreation, error) {
	re := &Recreation{options: o}
	begun, err := c.dir.Recreation().Read()
	if err != nil {
		return nil, err
	}
	if goesOn(begun, o) {
		re.Razed = begun.Began
		return re, nil
	}
	if re.Doomed, err = c.Doomed(o.destroy()); err != nil {
		return nil, err
	}
	all, err := c.recorded()
	if err != nil {
		return nil, err
	}
	for _, d := range all {
		switch {
		case slices.ContainsFunc(re.Doomed, func(x *Doomed) bool { return x.Record.Name == d.Record.Name }):
		case d.Record.Persistent:
			re.Persistent = append(re.Persistent, d.Record.Name)
		default:
			re.Kept = append(re.Kept, d.Record.Name)
		}
	}
	if len(all) == 0 && begun == nil { // the name of another cluster may have been meant
		return nil, &UsageError{Message: fmt.Sprintf("%s: nothing stands that could be created again\n  `castle create %s` creates it", c.Name(), c.options.Cluster)}
	}
	return re, nil
}

func goesOn(begun *state.Recreation, o RecreateOptions) bool {
	return begun != nil && begun.Razed && (begun.Rotate || !o.Rotate)
}

// outliving are the recorded stages of the secrets layer that can stay while the
// cluster goes: neither they nor what they need live in the cluster.
func outliving(all []*Doomed) map[string]bool {
	stays, recorded := map[string]bool{}, map[string]bool{}
	for _, d := range all {
		recorded[d.Record.Name] = true
		stays[d.Record.Name] = d.Record.Layer == secretsLayer && len(d.Record.InCluster) == 0 && !d.Record.EndsCluster
	}
	goes := func(need string) bool { return recorded[need] && !stays[need] }
	for changed := true; changed; {
		changed = false
		for _, d := range all {
			if stays[d.Record.Name] && slices.ContainsFunc(d.Record.Needs, goes) {
				stays[d.Record.Name], changed = false, true
			}
		}
	}
	return stays
}

// Recreate razes the cluster and raises it again, as one run under one lock. If
// not all is gone, nothing is raised. How far it has come is on disk before each
// half, so that the same command goes on wherever it ended.
func (c *Castle) Recreate(ctx context.Context, re *Recreation) error {
	doubts, err := c.judged()
	if err != nil {
		return err
	}
	r, err := c.begin(ctx, "recreate")
	if err != nil {
		return err
	}
	for _, d := range doubts {
		r.notice(d)
	}
	return r.end(r.recreate(ctx, re))
}

func (r *run) recreate(ctx context.Context, re *Recreation) error {
	// Without Terraform there would be ruins and nothing to raise anew with.
	if _, err := r.binary(); err != nil {
		return err
	}
	begun, err := r.dir.Recreation().Read()
	if err != nil {
		return err
	}
	switch {
	case re.Razed.IsZero():
		if err := r.razeFirst(ctx, re); err != nil {
			return err
		}
	case !goesOn(begun, re.options):
		return errMeanwhile(r.Castle)
	default:
		r.notice(fmt.Sprintf("run %s has razed the cluster; going on with raising it", begun.Run))
	}
	if err := r.raiseStages(ctx, r.cluster.Stages, re.options.Refresh); err != nil {
		return err
	}
	return r.dir.Recreation().Clear()
}

// razeFirst razes what was agreed on, and notes when all of it is gone.
func (r *run) razeFirst(ctx context.Context, re *Recreation) error {
	doomed, err := r.mended(re.options.destroy())
	if err != nil {
		return err
	}
	for _, d := range doomed {
		if !slices.ContainsFunc(re.Doomed, func(x *Doomed) bool { return x.Record.Name == d.Record.Name }) {
			return errMeanwhile(r.Castle)
		}
	}
	if len(doomed) > 0 {
		if err := r.readable(ctx); err != nil {
			return fmt.Errorf("%w\n  nothing was destroyed", err)
		}
		if doomed, err = r.mended(re.options.destroy()); err != nil { // that was an apply
			return err
		}
	}
	progress := state.Recreation{Run: r.id, Began: r.began, Rotate: re.options.Rotate}
	if err := r.dir.Recreation().Write(progress); err != nil {
		return err
	}
	if err := r.raze(ctx, doomed, re.options.Graceful); err != nil {
		return err
	}
	left, err := r.Doomed(re.options.destroy())
	if err != nil {
		return err
	}
	if len(left) > 0 {
		leftover := &LeftoverError{}
		for _, d := range left {
			leftover.Left = append(leftover.Left, "stage "+d.Record.Name)
		}
		return leftover
	}
	progress.Razed = true
	return r.dir.Recreation().Write(progress)
}

// raze destroys what there is to destroy; of nothing there is no receipt.
func (r *run) raze(ctx context.Context, doomed []*Doomed, graceful bool) error {
	if due, err := r.ReceiptDue(); err != nil || len(doomed) == 0 && !due {
		return err
	}
	return r.razeStages(ctx, doomed, graceful)
}

// readable reads once more what volatile stages of the secrets layer say: whoever
// has lost the right to read it could raze the cluster and not raise it again.
func (r *run) readable(ctx context.Context) error {
	var volatile []*config.Stage
	for _, s := range r.cluster.Stages {
		if s.Volatile && s.Layer == secretsLayer && !s.NeedsPlatform && len(s.Needs) == 0 {
			volatile = append(volatile, s)
		}
	}
	return r.raiseStages(ctx, volatile, true)
}

func errMeanwhile(c *Castle) error {
	return &UsageError{Message: c.Name() + ": another run has changed the cluster meanwhile; nothing was done, look again"}
}
