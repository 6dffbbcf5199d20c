package status

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/siderolabs/gen/xslices"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/history"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/run/applied"
	"github.com/ephemeral-castle/castle/internal/run/waiting"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/state/recorded"
	"github.com/ephemeral-castle/castle/internal/tfeval"
)

// Head is what a Status says about the cluster as a whole.
type Head struct {
	// Ready is about what is applied: its gates are open, and no run failed. Pending is about what the next
	// create would change. Neither follows from the other.
	Ready   Condition `json:"ready"`
	Pending Condition `json:"changes_pending"`
	Running Condition `json:"running"`

	Kubernetes string       `json:"kubernetes_version,omitempty"` // as it was applied
	Talos      string       `json:"talos_version,omitempty"`      // as it was applied
	Castle     string       `json:"castle_version,omitempty"`     // that applied it
	Endpoint   string       `json:"endpoint,omitempty"`
	LastRun    *history.Run `json:"last_run,omitempty"` // the newest one; nil if there was none
	// Next are the commands that go on after the last run that changes the cluster, if it failed or died.
	Next []string `json:"next,omitempty"`

	last *history.Timeline // of the last run that changes the cluster
}

// Condition is true, false, or unknown where castle could not look.
type Condition struct {
	Status string `json:"status"`
	Reason string `json:"reason"`
}

// The values of a condition's status.
const (
	True         = "true"
	False        = "false"
	Undetermined = "unknown"
)

// readHead reads the runs, the versions and the endpoint of a cluster from its record.
func (h *Head) read(c *cluster.Cluster, held *state.HeldError) error {
	h.Running = Condition{False, "no run holds the lock"}
	if held != nil {
		h.Running = runningNow(c, held)
	}
	newest, change, err := history.Last(c.Dir, held)
	if err != nil {
		return err
	}
	if newest != nil {
		newest.Reason = c.Masker.Hide(newest.Reason)
	}
	h.LastRun = newest
	if change != nil && change.Result != history.Running {
		h.last, _ = history.Read(c.Dir.Run(change.ID)) //nolint:errcheck // a power cut may have damaged it
		h.propose(change, c.Masker.Hide)
	}
	for _, stage := range c.Config.Stages {
		rec, err := c.Dir.Stage(stage.Name).Record()
		if err != nil || rec.Layer != cluster.PlatformLayer { // statusOf reports it
			continue
		}
		h.Castle = rec.Castle
		if _, inputs, err := recorded.Module(c.Dir.Stage(stage.Name), c.Command("create")); err == nil {
			var versions struct {
				Kubernetes string `json:"kubernetes_version"`
				Talos      string `json:"talos_version"`
			}
			if json.Unmarshal(inputs, &versions) == nil {
				h.Kubernetes = cmp.Or(versions.Kubernetes, h.Kubernetes)
				h.Talos = cmp.Or(versions.Talos, h.Talos)
			}
		}
		if st, err := c.Dir.Stage(stage.Name).LastKnown(); err == nil {
			out := st.Outputs["cluster_endpoint"]
			if texts := tfeval.Strings(out.Value); len(texts) == 1 && !out.Sensitive {
				h.Endpoint = texts[0]
			}
		}
	}
	return nil
}

// propose adds the commands that the last run proposes which changes the cluster.
func (h *Head) propose(change *history.Run, hide func(string) string) {
	var commands []string
	if end := h.last.End; end != nil && end.Ending != nil {
		commands = xslices.Map(end.Ending.Causes, func(c event.Cause) string { return c.Next })
	}
	for _, one := range append(commands, change.Resume) {
		if one != "" && !slices.Contains(h.Next, hide(one)) {
			h.Next = append(h.Next, hide(one))
		}
	}
}

// runningNow says which run holds the lock, by whom, and which steps it is at.
func runningNow(c *cluster.Cluster, held *state.HeldError) Condition {
	t, _ := history.Read(c.Dir.Run(held.Run)) //nolint:errcheck // it may have just begun
	var now []string
	for _, s := range t.Whole.Stages {
		if step := s.Step(); step != nil {
			now = append(now, s.Stage+" "+step.Name)
		}
	}
	text := fmt.Sprintf("%s (run %s, process %d on %s)", state.RunKind(held.Run), held.Run, held.PID,
		held.Host)
	if user, _, named := strings.Cut(t.By, "@"); named {
		text += " by " + user
	}
	if len(now) > 0 {
		text += ": " + strings.Join(now, ", ")
	}
	return Condition{True, text}
}

// sumUp sums up the stages.
func (s *Status) sumUp() {
	counts, unknown := map[string]int{}, 0
	var closed, unfinished, refused, pending []string
	for _, one := range s.Stages {
		counts[one.State]++
		shut := slices.ContainsFunc(one.Gates, func(g GateStatus) bool { return !g.Open })
		switch {
		case shut:
			closed = append(closed, one.Name)
		case one.State == Refused, one.State == Absent && one.Refused != "":
			refused = append(refused, one.Name)
		case one.unready, one.State == Failed, one.State == Skipped, one.State == Interrupted:
			unfinished = append(unfinished, one.Name)
		}
		switch one.State {
		case Stale, Drifted, Absent, Failed, Skipped, Interrupted, Refused:
			if one.State != Failed || !one.compared { // one with a closed gate alone has nothing to apply
				pending = append(pending, fmt.Sprintf("%s %s", one.Name, one.State))
			}
		case Unknown:
			unknown++
		}
	}
	there := len(s.Stages) - counts[Absent]
	s.Head.Ready = Condition{True, fmt.Sprintf("the gates of all %d stages are open", len(s.Stages))}
	switch {
	case len(closed)+len(unfinished)+len(refused) > 0:
		var why []string
		for i, names := range [][]string{closed, unfinished, refused} {
			if len(names) > 0 {
				why = append(why, []string{"closed gates: ", "unfinished: ", "refused: "}[i]+few(names))
			}
		}
		s.Head.Ready = Condition{False, strings.Join(why, "; ")}
	case there == 0:
		s.Head.Ready = Condition{False, "nothing is created"}
	case len(s.overdue()) > 0:
		s.Head.Ready = Condition{False, "not saved within its rpo, or not writable: " + few(s.overdue())}
	case s.lacksMachines():
		s.Head.Ready = Condition{Undetermined, "the state does not know all machines"}
	case counts[Absent] > 0:
		const text = "%d of %d stages (%d absent): the gates of what is applied are open"
		s.Head.Ready.Reason = fmt.Sprintf(text, there, len(s.Stages), counts[Absent])
	}
	for _, u := range s.Unlisted {
		pending = append(pending, u.Stage+" is not configured any more")
	}
	if s.Rotating {
		pending = append(pending, "an unfinished rotation (castle rotate "+s.Cluster+" passwords)")
	}
	switch {
	case len(pending) > 0:
		s.Head.Pending = Condition{True, few(pending)}
	case unknown > 0:
		s.Head.Pending = Condition{Undetermined, fmt.Sprintf("castle could not look at %d stages", unknown)}
	case counts[UpToDate] == len(s.Stages):
		s.Head.Pending = Condition{False, "castle has looked at every object"}
	default:
		s.Head.Pending = Condition{False, "nothing is known to differ; --refresh looks at every object"}
	}
}

// few lists at most four names.
func few(names []string) string {
	const most = 4
	if more := len(names) - most; more > 1 {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", more)
	}
	return strings.Join(names, ", ")
}

// remember adds why the last run that changes the cluster did not begin a stage, or refused its changes. A
// stage with nothing to do needs no reason.
func (one *StageStatus) remember(last *history.Timeline) {
	if last == nil || slices.Contains([]string{Ready, UpToDate, Refused}, one.State) {
		return
	}
	refused := last.End != nil && last.End.Ending != nil && last.End.Ending.Result == event.OutcomeRefused
	switch s := last.Part().Stage(one.Name); {
	case s == nil || s.Turned && (!refused || one.State == Failed):
	case s.Result == event.ResultFailed:
		one.Refused = s.Reason
	case s.Result == event.ResultSkipped:
		one.Skipped = s.Reason
	}
}

// checkGates checks the gates of a stage once: those that were applied if its inputs have changed since, so
// that a new configuration closes no gate of what runs.
func checkGates(ctx context.Context, r *run.Run, s *config.Stage, changed bool) ([]string, []error) {
	if last := applied.Gates(r, s); changed && last != nil {
		return xslices.Map(last, func(g gate.Gate) string { return g.Name }),
			run.Each(last, func(g gate.Gate) error { return g.Check(ctx) })
	}
	return xslices.Map(s.Gates, (*config.Gate).Name),
		run.Each(s.Gates, func(g *config.Gate) error { return waiting.CheckGate(ctx, r, s, g) })
}

// closedSince returns since when the last run's journal has a gate closed, or else when it found it open.
func closedSince(r *run.Run, stage, name string) (since, open time.Time) {
	runs, err := r.Cluster.Dir.Runs()
	if err != nil {
		return since, open
	}
	for _, id := range runs {
		s := stageIn(r, id, stage)
		if s == nil {
			continue
		}
		if open = s.Opened; s.Gate(name) != nil {
			since = s.Gate(name).Closed
			open = slices.MaxFunc([]time.Time{open, s.Gate(name).Opened}, time.Time.Compare)
		}
		if !since.IsZero() || !open.IsZero() {
			break
		}
	}
	return since, open
}
