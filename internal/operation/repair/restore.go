package repair

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/run/applied"
	"github.com/ephemeral-castle/castle/internal/state"
)

// RestoreOptions select the state that replaces a stage's.
type RestoreOptions struct {
	Stage    string
	Snapshot string // a serial, a snapshot's name, or newest; empty: newest
	Errored  bool   // restore the state that Terraform could not write, not a snapshot
}

// Restoration describes the changes of a restore.
type Restoration struct {
	Stage, Layer string
	Snapshot     string // its name; empty: the state that Terraform could not write
	Serial       uint64
	Taken        time.Time
	Present      string   // the state as it is, in words
	Removed      []string // resources that the restore removes from the state
	Restored     []string // resources that it adds
	Same         bool     // the state is this one already

	copied *state.Copy
	sum    string
}

// PrepareRestore returns the changes that Restore would make; it changes nothing. It refuses a copy that is
// unreadable or of another lineage.
func PrepareRestore(c *cluster.Cluster, o RestoreOptions) (*Restoration, error) {
	p, err := c.RecordedStage(o.Stage)
	if err != nil {
		return nil, err
	}
	dir := c.Dir.Stage(p.Name)
	copied, err := chosenCopy(dir, p.Name, o)
	if err != nil {
		return nil, c.MaskError(err)
	}
	if err := dir.Copies().Check(copied); err != nil {
		return nil, c.MaskError(err)
	}
	sum, err := dir.StateDigest()
	if err != nil {
		return nil, err
	}
	re := &Restoration{
		Stage: p.Name, Layer: p.Layer, Serial: copied.State.Serial, Taken: copied.Taken,
		copied: copied, sum: sum,
	}
	if !o.Errored {
		re.Snapshot = copied.Name
	}
	now, err := dir.State()
	switch unreadable, is := errors.AsType[*state.UnreadableError](err); {
	case is && unreadable.State != nil:
		now = unreadable.State
		re.Present = fmt.Sprintf("serial %d: %s", now.Serial, c.Masker.Hide(unreadable.Reason.Error()))
	case is:
		now = &state.State{}
		re.Present = "unreadable: " + c.Masker.Hide(unreadable.Reason.Error())
	case err != nil:
		return nil, err
	default:
		re.Present = fmt.Sprintf("serial %d", now.Serial)
		re.Same = now.SHA256 == copied.State.SHA256 && !o.Errored
	}
	c.MaskOutputs(now)
	c.MaskOutputs(copied.State)
	re.Removed, re.Restored = without(c, now, copied.State), without(c, copied.State, now)
	return re, nil
}

func chosenCopy(dir *state.Stage, stage string, o RestoreOptions) (*state.Copy, error) {
	refuse := func(format string, args ...any) (*state.Copy, error) {
		return nil, &cluster.UsageError{Message: "stage " + stage + fmt.Sprintf(format, args...)}
	}
	if o.Errored {
		rescued, err := dir.Copies().Errored()
		if err == nil && rescued == nil {
			return refuse(": Terraform has left no state that it could not write")
		}
		return rescued, err
	}
	copies, err := dir.Copies().Snapshots()
	if err != nil {
		return nil, err
	}
	if o.Snapshot == "" || o.Snapshot == "newest" {
		newest, err := dir.Copies().Newest()
		if err == nil && newest == nil {
			return refuse(" has no good snapshot of its state")
		}
		return newest, err
	}
	var found []*state.Copy
	var serials, names []string // of the good ones, and of those found
	for _, s := range copies {
		if s.Name == o.Snapshot {
			return s, nil
		}
		if s.State == nil {
			continue // unreadable
		}
		serial := strconv.FormatUint(s.State.Serial, 10)
		serials = append(serials, serial)
		if serial == o.Snapshot {
			found, names = append(found, s), append(names, s.Name)
		}
	}
	differs := func(s *state.Copy) bool { return s.State.SHA256 != found[0].State.SHA256 }
	switch {
	case len(serials) == 0:
		return refuse(" has no good snapshot")
	case len(found) == 0:
		return refuse(" has no good snapshot %q; there are the serials %s", o.Snapshot,
			strings.Join(serials, ", "))
	case slices.ContainsFunc(found, differs):
		return refuse(" has several snapshots with serial %s that differ; name one: %s", o.Snapshot,
			strings.Join(names, ", "))
	}
	return found[0], nil
}

// without lists the resources that one state has and the other lacks.
func without(c *cluster.Cluster, one, other *state.State) []string {
	var missing []string
	for _, res := range one.Resources {
		same := func(o state.Resource) bool { return o.Address == res.Address && o.Deposed == res.Deposed }
		if res.Mode == cluster.ManagedMode && !slices.ContainsFunc(other.Resources, same) {
			missing = append(missing, c.Masker.Hide(res.Address))
		}
	}
	return missing
}

// Restore replaces the state under the cluster's lock, unless it has changed since PrepareRestore. It
// returns where it keeps the old files.
func Restore(ctx context.Context, c *cluster.Cluster, re *Restoration) (aside []string, err error) {
	_, r, err := run.Begin(ctx, c, "restore", applied.CleanUp)
	if err != nil {
		return nil, err
	}
	defer func() { err = r.End(err) }()
	dir := r.Cluster.Dir.Stage(re.Stage)
	if err := unchanged(dir, re.Stage, re.sum); err != nil {
		return nil, err
	}
	r.Notice(fmt.Sprintf("stage %s: restoring serial %d from %s", re.Stage, re.Serial, re.copied.Path()))
	return dir.Copies().Restore(re.copied)
}

// unchanged returns an error if the state has changed since the user's decision.
func unchanged(dir *state.Stage, stage, sum string) error {
	now, err := dir.StateDigest()
	if err == nil && now != sum {
		err = &cluster.UsageError{Message: "stage " + stage +
			": another run has changed the state meanwhile; nothing was done, look again"}
	}
	return err
}
