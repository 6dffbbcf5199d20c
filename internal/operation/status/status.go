// Package status reports the present state of a cluster: its stages, gates and outputs.
// It changes nothing and starts no Terraform.
package status

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/history"
	"github.com/ephemeral-castle/castle/internal/platform"
	"github.com/ephemeral-castle/castle/internal/revision"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/run/applied"
	"github.com/ephemeral-castle/castle/internal/run/expiry"
	"github.com/ephemeral-castle/castle/internal/run/recovery"
	"github.com/ephemeral-castle/castle/internal/run/review"
	"github.com/ephemeral-castle/castle/internal/run/survival"
	"github.com/ephemeral-castle/castle/internal/run/unrecorded"
	"github.com/ephemeral-castle/castle/internal/run/waiting"
	"github.com/ephemeral-castle/castle/internal/state"
)

// The states of a stage.
const (
	Absent      = "absent"      // never created, or destroyed
	Ready       = "ready"       // every gate open, and nothing known to differ
	UpToDate    = "up to date"  // ready, and castle has looked at its objects: nothing differs
	Stale       = "stale"       // its inputs have changed since it was ready
	Drifted     = "drifted"     // its inputs have not, but an object that it owns is absent or changed
	Unknown     = "unknown"     // castle could not look at its objects, or does not know machines that exist
	Failed      = "failed"      // its last run failed, or a gate is closed now
	Skipped     = "skipped"     // its last run ended before its last gates: what they wait for failed
	Interrupted = "interrupted" // a run ended in the middle of it
	Refused     = "refused"     // a preflight refuses a create: Reason says why
)

// Status is the result of `castle status` for a cluster.
type Status struct {
	Cluster  string             `json:"cluster"`
	Platform string             `json:"platform"`
	Stages   []StageStatus      `json:"stages"`
	Unlisted []cluster.Unlisted `json:"unlisted,omitempty"` // that are recorded and not configured any more
	Damaged  []string           `json:"damaged,omitempty"`  // files that castle reads from their copies
	// Unknown are machines of the cluster that its state does not know; nil if castle has found none.
	Unknown *unrecorded.Found `json:"unknown,omitempty"`
	// Machines are the machines of the state as they are now; none if castle could not look.
	Machines []platform.Fact `json:"machines,omitempty"`
	// Certificates are the credentials that expire soon, with the command that renews them.
	Certificates []string `json:"certificates,omitempty"`
	// Backup is the newest backup of etcd; nil for a cluster that castle cannot back up.
	Backup *Backup `json:"backup,omitempty"`
	// Data tells how old the newest saves of the data are that outlive the cluster.
	Data []survival.Age `json:"data,omitempty"`
	// Rotating: a rotation of passwords was begun and not completed.
	Rotating bool `json:"rotating,omitempty"`

	Head Head `json:"head"`
}

// StageStatus is one stage's part of a Status.
type StageStatus struct {
	Name    string          `json:"name"`
	Layer   string          `json:"layer"`
	State   string          `json:"state"`
	Changed []string        `json:"changed,omitempty"` // the parts that make it stale
	Drifted []DriftedObject `json:"drifted,omitempty"`
	Reason  string          `json:"reason,omitempty"` // why it failed, or is unknown
	// Refused is why the last run that changes the cluster refused to begin the stage, such as after a
	// preflight; Skipped is which dependency failed, if that run did not begin it.
	Refused string       `json:"refused,omitempty"`
	Skipped string       `json:"skipped,omitempty"`
	Gates   []GateStatus `json:"gates"`

	closed   bool // a gate is closed, and nothing else made the stage fail
	compared bool // its inputs are those of its last good apply
	unready  bool // no apply of it has ended well yet, so that its gates say nothing
	err      error
}

// DriftedObject is an object that a stage owns and that is not as the last apply left it. It holds no value.
type DriftedObject struct {
	Object string   `json:"object"` // address of a resource, or kind and name
	Absent bool     `json:"absent"`
	Fields []string `json:"fields,omitempty"` // the changed ones, where castle knows them
	Lost   []string `json:"lost,omitempty"`   // disks that a create would replace by empty ones
}

func (d DriftedObject) String() string {
	text := d.Object + " has changed"
	switch {
	case d.Absent:
		text = d.Object + " is absent"
	case len(d.Fields) > 0:
		text += ": " + strings.Join(d.Fields, ", ")
	}
	return strings.Join(append([]string{text}, d.Lost...), "; ")
}

// GateStatus is the result of one check of a gate.
type GateStatus struct {
	Name   string `json:"name"`
	Open   bool   `json:"open"`
	Reason string `json:"reason"`
	// Since is since when the gate is closed, as far as castle has seen it: in the journal, or by --watch.
	Since time.Time `json:"since,omitzero"`
	// LastOpen is when a run last found the closed gate open.
	LastOpen time.Time `json:"last_open,omitzero"`
	// Recorded reports that the last run failed for this gate and this reason.
	Recorded bool `json:"-"`
}

// OnlyGates reports whether a gate is closed and no stage failed for another reason.
func (s Status) OnlyGates() bool {
	failed := func(one StageStatus) bool {
		return one.State == Drifted || one.State == Unknown || one.State == Refused ||
			!one.closed && (one.State == Failed || one.State == Interrupted)
	}
	return slices.ContainsFunc(s.Stages, func(one StageStatus) bool { return one.closed }) &&
		!slices.ContainsFunc(s.Stages, failed)
}

// AllReady reports whether each stage is ready or up to date, no machine is unknown, and no data are overdue.
func (s Status) AllReady() bool {
	unready := func(one StageStatus) bool { return one.State != Ready && one.State != UpToDate }
	return !s.lacksMachines() && len(s.overdue()) == 0 && !slices.ContainsFunc(s.Stages, unready)
}

// overdue names the data whose last save is older than their rpo, or not known, and what nobody can write.
func (s Status) overdue() (names []string) {
	for _, d := range s.Data {
		if d.Overdue || d.Frozen {
			names = append(names, d.Name)
		}
	}
	return names
}

// lacksMachines reports whether the record may lack machines of the configuration. A copy of one that it has
// says nothing about the cluster.
func (s Status) lacksMachines() bool { return s.Unknown != nil && len(s.Unknown.Stages) > 0 }

// Any reports whether a stage has this state, such as Refused: a create would refuse it.
func (s Status) Any(state string) bool {
	return slices.ContainsFunc(s.Stages, func(one StageStatus) bool { return one.State == state })
}

// Run checks every gate once and compares every stage with its last good apply: its inputs, and the revisions
// of its objects, or what looks found at them. It changes nothing and starts no Terraform.
func Run(ctx context.Context, c *cluster.Cluster, looks map[string]review.Look) (Status, error) {
	all := Status{Cluster: c.Config.Name, Platform: c.Config.Platform}
	r := run.Observe(ctx, c)
	states, err := r.LastKnownStates()
	if err == nil {
		all.Damaged, err = c.Dir.Repair()
	}
	if err != nil {
		return all, c.MaskError(err)
	}
	if all.Unlisted, err = r.Cluster.UnlistedStages(); err != nil {
		return all, c.MaskError(err)
	}
	held := cluster.Holder(ctx, c)
	if err := all.Head.read(c, held); err != nil {
		return all, c.MaskError(err)
	}
	var found *unrecorded.Found
	looked, read := make(chan error, 1), make(chan []expiry.Item, 1)
	go func() {
		var err error
		found, err = unrecorded.Look(ctx, r, c.Config.Stages)
		looked <- err
	}()
	go func() { read <- expiry.Look(ctx, r, states, false) }()
	all.Stages = run.Each(c.Config.Stages, func(s *config.Stage) StageStatus {
		one, err := statusOf(ctx, r, s, states[s], held)
		if err == nil && one.compared {
			err = one.compare(ctx, r, s, states[s], looks)
		}
		one.remember(all.Head.last)
		one.err = err
		return one
	})
	err = <-looked
	for _, i := range <-read {
		if i.Warns() {
			all.Certificates = append(all.Certificates, i.String()+"; to renew it: "+i.Fix)
		}
	}
	for i, one := range all.Stages {
		rotation, failed := cluster.RotationOf(c.Dir.Stage(c.Config.Stages[i].Name)).Value()
		all.Rotating = all.Rotating || rotation.Next != nil
		err = errors.Join(err, one.err, failed)
	}
	all.Backup, all.Data = newestBackup(ctx, r), survival.Ages(ctx, r)
	if ctx.Err() != nil {
		return all, context.Cause(ctx) // an interrupted status is incomplete
	}
	if err == nil {
		all.Machines = found.Facts
	}
	if err == nil && !found.None() {
		all.unknown(found)
	}
	all.sumUp()
	return all, c.MaskError(err)
}

// unknown adds what a look at Proxmox has found. A stage without a record is not absent then.
func (s *Status) unknown(found *unrecorded.Found) {
	s.Unknown = found
	reason := found.NotAsked
	if n := len(found.Machines); n > 0 {
		reason = fmt.Sprintf("machines of the cluster that this state does not know: %d", n)
	}
	for i := range s.Stages {
		if one := &s.Stages[i]; one.State == Absent && slices.Contains(found.Stages, one.Name) {
			one.State, one.Reason = Unknown, reason
		}
	}
}

func statusOf(ctx context.Context, r *run.Run, s *config.Stage, st *state.State, held *state.HeldError) (
	StageStatus, error) {
	one := StageStatus{Name: s.Name, Layer: s.Layer, State: Absent, Gates: []GateStatus{}}
	dir := r.Cluster.Dir.Stage(s.Name)
	rec, err := dir.Record()
	if errors.Is(err, fs.ErrNotExist) {
		return one, nil
	}
	if err != nil {
		return one, err
	}
	old, err := dir.Fingerprint().Read()
	if err != nil {
		return one, err
	}
	recorded := &history.Stage{} // as the last run left it, if it failed
	if old == nil {
		var left *history.Stage
		if one.State, one.Reason, left = lastRun(r, rec, held); left != nil {
			recorded = left
		}
		if one.State == Interrupted {
			one.Reason = r.Cluster.Masker.Hide(recovery.Summary(dir, st))
		}
	} else if one.Changed, err = applied.Changed(r, s, old); err != nil { // an input is no longer known
		one.State, one.Reason = Stale, r.Cluster.Masker.Hide(err.Error())
	} else if one.State = Ready; len(one.Changed) > 0 {
		one.State = Stale
	} else {
		one.compared = st.Exists && st.Notice == ""
	}
	if st.Notice != "" { // it cannot be read
		one.State, one.Reason = Failed, r.Cluster.Masker.Hide(st.Notice)
	}
	one.unready = old == nil || !st.Exists
	if !st.Exists {
		return one, nil
	}
	names, closed := checkGates(ctx, r, s, old != nil && len(one.Changed) > 0)
	for i, err := range closed {
		g := GateStatus{Name: names[i], Open: err == nil}
		if err != nil {
			g.Since, g.LastOpen = closedSince(r, s.Name, g.Name)
			g.Reason = r.Cluster.Masker.Hide(err.Error())
			last := recorded.Gate(g.Name)
			g.Recorded = last != nil && last.Reason == g.Reason
			isClosed := func(g *history.Gate) bool { return g.Reason != "" }
			one.closed = st.Notice == "" && (old != nil || slices.ContainsFunc(recorded.Gates, isClosed))
			if one.State == Ready {
				one.State = Failed
			}
		}
		one.Gates = append(one.Gates, g)
	}
	return one, nil
}

// compare compares the objects of a stage, whose inputs are unchanged, with those of its last apply: by what
// a look has found, or by their revisions. A closed gate says more than objects that nobody could look at.
func (one *StageStatus) compare(ctx context.Context, r *run.Run, s *config.Stage, st *state.State,
	looks map[string]review.Look) error {
	look, looked := looks[s.Name]
	if looks != nil && !looked {
		return nil
	}
	unknown, refused := "", look.Refused
	if !looked {
		drift, err := applied.FindDrift(ctx, r, s, st)
		if err != nil {
			return err
		}
		var lost map[string][]string
		if len(drift.Differences) > 0 {
			refused, lost = inspect(ctx, r, s)
		}
		for _, d := range drift.Differences {
			one.Drifted = append(one.Drifted, DriftedObject{r.Cluster.Masker.Hide(d.Object.String()),
				d.Now == revision.Absent, nil, lost[d.Object.Address]})
		}
		if !drift.OnlyTerraform {
			unknown = drift.Unknown
		}
	}
	switch look.State {
	case review.Drifted:
		for _, c := range look.Changes {
			absent := c.Action == "create" || c.Action == review.Restore && c.Reason == review.Absent
			one.Drifted = append(one.Drifted, DriftedObject{c.Address, absent, c.Attributes, c.Lost})
		}
	case review.Changes: // a stage that only reads, and would output something else
		one.State, one.Changed = Stale, []string{"what it reads"}
	case review.UpToDate:
		if one.State == Ready {
			one.State = UpToDate
		}
	case review.Unknown, review.Unreachable, review.Failed:
		unknown = look.Reason
	}
	switch {
	case len(refused) > 0:
		one.State = Refused
		one.Reason = r.Cluster.Masker.Hide(strings.Join(refused, "\n"))
	case len(one.Drifted) > 0:
		one.State = Drifted
	case unknown != "" && one.State == Ready:
		one.State, one.Reason = Unknown, r.Cluster.Masker.Hide(unknown)
	}
	return nil
}

// inspect asks the preflights of the machines why they refuse a create, and for the detached disks of each.
func inspect(ctx context.Context, r *run.Run, s *config.Stage) (refused []string, lost map[string][]string) {
	ctx, stop := context.WithTimeout(ctx, 10*time.Second)
	defer stop()
	lost = map[string][]string{}
	for _, p := range s.Preflights {
		if !p.Type.HasMachineIDs {
			continue
		}
		found, err := waiting.Inspect(ctx, r, s, p)
		if err != nil {
			continue
		}
		for _, d := range found.Detached {
			lost[d.Address] = append(lost[d.Address], r.Cluster.Masker.Hide(d.Text))
		}
		if err := waiting.Refuse(r, s, p, found, false); errors.As(err, new(*run.PreflightError)) {
			refused = append(refused, err.Error())
		}
	}
	return refused, lost
}

// lastRun reads how the last run on an unready stage left it: failed with a reason, interrupted, or still
// at work. The stage is that of the run that failed or skipped it, else nil.
func lastRun(r *run.Run, rec state.Record, held *state.HeldError) (string, string, *history.Stage) {
	if held != nil {
		// A destroy keeps a stage's record, so that only its journal names the stage.
		s := stageIn(r, held.Run, rec.Name)
		if s != nil && (s.Turned || s.Result == event.ResultFailed) || held.Run == rec.Run {
			return Stale, fmt.Sprintf("run %s (process %d on %s) is working on it", held.Run, held.PID,
				held.Host), nil
		}
	}
	runs, _ := r.Cluster.Dir.Runs() //nolint:errcheck // without one, it was interrupted
	for _, id := range runs {
		switch s := stageIn(r, id, rec.Name); {
		case s == nil:
		case s.Result == event.ResultFailed:
			return Failed, s.Reason, s
		case s.Turned && s.Result == event.ResultSkipped: // one that never began is as it was before
			return Skipped, s.Reason, s
		case s.Turned:
			return Interrupted, "", nil
		}
	}
	return Interrupted, "", nil
}

// stageIn returns a stage as a run left it; nil if the journal does not name it, or is unreadable.
func stageIn(r *run.Run, id, stage string) *history.Stage {
	t, err := history.Read(r.Cluster.Dir.Run(id))
	if err != nil {
		return nil
	}
	return t.Whole.Stage(stage)
}

// OutputValue is one output of a layer.
type OutputValue struct {
	Layer, Stage, Name string
	Sensitive          bool
	Value              cty.Value
}

// Outputs returns the outputs of every stage, by layer and name.
func Outputs(c *cluster.Cluster) ([]OutputValue, error) {
	var all []OutputValue
	for _, s := range c.Config.Stages {
		st, err := c.Dir.Stage(s.Name).State()
		if err != nil {
			return nil, err
		}
		start := len(all)
		for name, out := range st.Outputs {
			all = append(all, OutputValue{
				Layer: s.Layer, Stage: s.Name, Name: name, Value: out.Value,
				Sensitive: out.Sensitive || s.Outputs[name].Sensitive,
			})
		}
		slices.SortFunc(all[start:], func(a, b OutputValue) int { return strings.Compare(a.Name, b.Name) })
	}
	return all, nil
}

// Configs returns the paths of the platform's kubeconfig and talosconfig. One that is lost is written again.
// The error for one that never was names the command that creates it. One that runs a program is an error.
func Configs(ctx context.Context, c *cluster.Cluster) (kubeconfig, talosconfig string, err error) {
	r := run.Observe(ctx, c)
	if _, err := r.LastKnownStates(); err != nil {
		return "", "", c.MaskError(err)
	}
	if err := r.Restore(); err != nil {
		return "", "", err
	}
	for _, path := range []string{c.Dir.Kubeconfig(), c.Dir.Talosconfig()} {
		if _, err := os.Lstat(path); err != nil {
			return "", "", &cluster.UsageError{Message: fmt.Sprintf(
				"%s has no kubeconfig yet; create it with `castle create %s`", c.Name(), c.Config.Name)}
		}
	}
	return c.Dir.Kubeconfig(), c.Dir.Talosconfig(), c.CheckExports()
}

// Credentials is the result of `castle status --certificates`.
type Credentials struct {
	Cluster      string        `json:"cluster"`
	Platform     string        `json:"platform"`
	Certificates []expiry.Item `json:"certificates"`
}

// Certificates lists what of a cluster expires, and when.
func Certificates(ctx context.Context, c *cluster.Cluster) (Credentials, error) {
	all := Credentials{Cluster: c.Config.Name, Platform: c.Config.Platform}
	r := run.Observe(ctx, c)
	states, err := r.LastKnownStates()
	if err != nil {
		return all, c.MaskError(err)
	}
	all.Certificates = append([]expiry.Item{}, expiry.Look(ctx, r, states, true)...)
	if ctx.Err() != nil {
		return all, context.Cause(ctx)
	}
	return all, nil
}
