// Package history shows what the runs of a cluster have left in its state directory: the list of the runs,
// and the lines of one run. It changes nothing, except that Prune removes old runs.
package history

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/history"
	"github.com/ephemeral-castle/castle/internal/run/applied"
	"github.com/ephemeral-castle/castle/internal/state"
)

// History is the result of `castle history`.
type History struct {
	Cluster  string        `json:"cluster"`
	Platform string        `json:"platform"`
	Keep     int           `json:"keep"` // how many runs castle keeps; 0: all
	Runs     []history.Run `json:"runs"` // the newest first
}

// List returns the runs that the state directory has.
func List(ctx context.Context, c *cluster.Cluster) (History, error) {
	h := History{Cluster: c.Config.Name, Platform: c.Config.Platform, Keep: c.Config.Runs,
		Runs: []history.Run{}}
	for one, err := range history.Runs(c.Dir, cluster.Holder(ctx, c)) {
		if err != nil {
			return h, c.MaskError(err)
		}
		one.Reason = c.Masker.Hide(one.Reason)
		h.Runs = append(h.Runs, one)
	}
	return h, nil
}

// Removed is the result of a Prune.
type Removed struct {
	Cluster  string   `json:"cluster"`
	Platform string   `json:"platform"`
	Keep     int      `json:"keep"`
	Removed  []string `json:"removed"` // the ids of the runs
	Left     int      `json:"left"`
}

// Prune removes the runs beyond the newest ones: as many as keep says, or as the configuration does if keep
// is 0. castle keeps an older run that it reads again.
func Prune(ctx context.Context, c *cluster.Cluster, keep int, notice func(string)) (Removed, error) {
	if keep == 0 {
		keep = c.Config.Runs
	}
	r := Removed{Cluster: c.Config.Name, Platform: c.Config.Platform, Keep: keep, Removed: []string{}}
	removed, err := applied.Prune(ctx, c, keep, notice)
	if err != nil {
		return r, err
	}
	r.Removed = append(r.Removed, removed...)
	left, err := List(ctx, c)
	r.Left = len(left.Runs)
	return r, err
}

// Line is one line of a run: an event of its journal, or a line that Terraform printed.
type Line struct {
	Time  time.Time `json:"time"`
	Layer string    `json:"layer,omitempty"`
	Stage string    `json:"stage,omitempty"`
	// Terraform is the text of a line of Terraform's; Event is the event otherwise.
	Terraform string       `json:"terraform,omitempty"`
	Event     *event.Event `json:"event,omitempty"`
}

// LogOptions select lines.
type LogOptions struct {
	Run   string        // its id, or the beginning or end of it; empty: the newest run
	Stage string        // a stage's or layer's name; empty: all
	Since time.Duration // how old the lines are at most; 0: any
	// Follow goes on until the run has ended.
	Follow bool
}

// Logs are the lines of one run.
type Logs struct {
	Run history.Run // as it was when Logs began

	cluster *cluster.Cluster
	files   *state.Run
	options LogOptions
	after   time.Time // no line before it

	journal int64            // read so far
	read    map[string]int64 // of each stage's log
	layers  map[string]string
	ended   bool // the journal has its last event
}

// OpenLogs finds the run that o selects.
func OpenLogs(ctx context.Context, c *cluster.Cluster, o LogOptions) (*Logs, error) {
	l := &Logs{
		cluster: c, options: o, read: map[string]int64{}, layers: map[string]string{},
	}
	if o.Since > 0 {
		l.after = time.Now().Add(-o.Since)
	}
	id, err := runOf(c, o.Run)
	if err != nil {
		return nil, err
	}
	l.files = c.Dir.Run(id)
	if l.Run, err = history.Of(l.files, cluster.Holder(ctx, c)); err != nil {
		return nil, c.MaskError(err)
	}
	if err := maskRecorded(c); err != nil {
		return nil, err
	}
	return l, l.knowStages()
}

// runOf returns the id of the run that reference names by a beginning or end of it; empty: the newest run.
func runOf(c *cluster.Cluster, reference string) (string, error) {
	ids, err := c.Dir.Runs()
	if err != nil {
		return "", err
	}
	var found []string
	for _, id := range ids {
		switch {
		case id == reference, reference == "" && state.IsRunID(id):
			return id, nil
		case state.IsRunID(id) && (strings.HasPrefix(id, reference) || strings.HasSuffix(id, reference)):
			found = append(found, id)
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case reference == "":
		return "", cluster.Usagef("%s has had no run yet: `%s` is the first", c.Name(), c.Command("create"))
	case len(found) == 0:
		return "", cluster.Usagef("%s has no run %q (any more): `%s` lists its runs", c.Name(), reference,
			c.Command("history"))
	}
	return "", cluster.Usagef("%s has %d runs %q: name one of %s", c.Name(), len(found), reference,
		strings.Join(found, ", "))
}

// maskRecorded masks the sensitive outputs of all recorded stages: an early run may have written them.
func maskRecorded(c *cluster.Cluster) error {
	names, err := c.Dir.Stages()
	for _, name := range names {
		if st, unread := c.Dir.Stage(name).LastKnown(); unread == nil { // another command reports it
			c.MaskOutputs(st)
		}
	}
	return err
}

// knowStages refuses a stage that the run does not name.
func (l *Logs) knowStages() error {
	t, err := history.Read(l.files)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return l.cluster.MaskError(err)
	}
	logs, err := l.files.Logs()
	if err != nil {
		return err
	}
	for _, s := range l.cluster.Config.Stages {
		l.layers[s.Name] = s.Layer
	}
	refs := []cluster.StageRef{}
	for _, s := range t.Whole.Stages {
		refs = append(refs, cluster.StageRef{Name: s.Stage, Layer: s.Layer})
		l.layers[s.Stage] = s.Layer
	}
	for _, name := range logs {
		if l.layers[name] == "" {
			rec, _ := l.cluster.Dir.Stage(name).Record() //nolint:errcheck // it may be destroyed
			l.layers[name] = rec.Layer
		}
		if ref := (cluster.StageRef{Name: name, Layer: l.layers[name]}); !slices.Contains(refs, ref) {
			refs = append(refs, ref)
		}
	}
	if l.options.Stage == "" || l.Run.Result == history.Running && l.configured() {
		return nil
	}
	if len(refs) == 0 {
		return cluster.Usagef("run %s has worked on no stage", l.Run.ID)
	}
	_, err = cluster.Find("logs of run "+l.Run.ID, l.options.Stage, refs)
	return err
}

// configured reports whether the configuration has the selected stage: its turn may not have come yet.
func (l *Logs) configured() bool {
	_, err := cluster.Find("logs", l.options.Stage, cluster.Refs(l.cluster.Config.Stages))
	return err == nil
}

// The intervals at which Each looks for new lines, and at which it brings the directory to the newest commit
// of the store, for a run of another machine.
const (
	followInterval   = 200 * time.Millisecond
	checkoutInterval = 3 * time.Second
)

// Each calls do for each line in the order of time, and with Follow until the run has ended. died reports
// that the run ended without a last event.
func (l *Logs) Each(ctx context.Context, do func(Line) error) (died bool, err error) {
	checkedOut, gone := time.Now(), false
	for {
		lines, err := l.next()
		if err != nil {
			return false, err
		}
		for _, line := range lines {
			if err := do(line); err != nil {
				return false, err
			}
		}
		if !l.options.Follow || l.ended || gone {
			return !l.ended && gone, nil
		}
		if !gate.Sleep(ctx, followInterval) {
			return false, context.Cause(ctx)
		}
		if l.cluster.Copy != nil && time.Since(checkedOut) > checkoutInterval {
			if _, err := l.cluster.Copy.Checkout(ctx); err != nil {
				return false, err
			}
			checkedOut = time.Now()
		}
		// Its last lines may follow: they are read once more.
		if l.cluster.Copy == nil || checkedOut.Add(followInterval).After(time.Now()) {
			held := cluster.Holder(ctx, l.cluster)
			gone = held == nil || held.Run != l.Run.ID
		}
	}
}

// next returns the new lines, in the order of time.
func (l *Logs) next() ([]Line, error) {
	stages, err := l.files.Logs() // before the journal: its last event comes after all of them
	if err != nil {
		return nil, err
	}
	events, read, err := l.files.EventsFrom(l.journal)
	if err != nil {
		return nil, l.cluster.MaskError(err)
	}
	l.journal = read
	var lines []Line
	for _, e := range events {
		if e.Stage != "" {
			l.layers[e.Stage] = e.Layer
		}
		l.ended = l.ended || e.Kind == event.RunEnded
		masked := e.Masked(l.cluster.Masker.Hide)
		lines = append(lines, Line{Time: e.Time, Layer: e.Layer, Stage: e.Stage, Event: &masked})
	}
	for _, stage := range stages {
		text, err := l.files.LogFrom(stage, l.read[stage])
		if err != nil {
			return nil, err
		}
		l.read[stage] += int64(len(text))
		lines = append(lines, l.terraform(stage, text)...)
	}
	lines = slices.DeleteFunc(lines, func(line Line) bool {
		selected := l.options.Stage == "" || l.options.Stage == line.Stage || l.options.Stage == line.Layer
		return !selected || line.Time.Before(l.after)
	})
	slices.SortStableFunc(lines, func(a, b Line) int { return a.Time.Compare(b.Time) })
	return lines, nil
}

// terraform makes lines of the text of a log. A damaged line, without a time, has that of the run.
func (l *Logs) terraform(stage string, text []byte) (lines []Line) {
	for raw := range bytes.Lines(text) {
		line := strings.TrimSuffix(string(raw), "\n")
		at := l.Run.Started
		if stamp, rest, cut := strings.Cut(line, " "); cut {
			if t, err := time.Parse(state.LogTime, stamp); err == nil {
				at, line = t, rest
			}
		}
		if strings.TrimSpace(line) == "" {
			continue
		}
		lines = append(lines, Line{
			Time: at, Layer: l.layers[stage], Stage: stage, Terraform: l.cluster.Masker.Hide(line),
		})
	}
	return lines
}
