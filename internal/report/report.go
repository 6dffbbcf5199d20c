// Package report sums up a run for a reader: counts, a timeline, the critical path, the slowest resources,
// retries, gates that took longer than usual, and the causes of a failure. New makes the report from the
// run's events; the Write functions print it as text, Markdown, HTML, JSON or JUnit, or for GitHub and
// GitLab. It reads no file. Events hold no secret; New makes control characters visible; writers escape them.
package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/siderolabs/gen/xslices"

	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/history"
)

// How a run ended, in the words of event.Outcome; unfinished if it still runs or was killed.
const (
	succeeded   = string(event.OutcomeSucceeded)
	failed      = string(event.OutcomeFailed)
	interrupted = string(event.OutcomeInterrupted)
	unfinished  = "unfinished"
)

// Report is the summary of one run. Its JSON is stable for scripts: fields may be added, none changes its
// meaning (docs/report.md).
type Report struct {
	Run     string    `json:"run"`
	Kind    string    `json:"kind"`    // create, destroy, recreate …
	Cluster string    `json:"cluster"` // blue/proxmox
	Result  string    `json:"result"`
	Error   string    `json:"error,omitempty"`
	Began   time.Time `json:"began"`
	Ended   time.Time `json:"ended"` // of the last event, if the run has no end
	Seconds float64   `json:"seconds"`
	// ExitCode is null for a run without an end.
	ExitCode *int   `json:"exit_code"`
	Resume   string `json:"resume,omitempty"` // the command that resumes the run

	Counts Counts  `json:"counts"`
	Stages []Stage `json:"stages"` // in the order of their start
	// Machines are the steps of a rollout that have ended.
	Machines []history.Machine `json:"machines,omitempty"`

	CriticalPath    []Step  `json:"critical_path"` // empty if the configuration does not show it
	CriticalSeconds float64 `json:"critical_seconds"`

	// Flux has the objects of Flux when its gate opened, in the order in which they became ready.
	Flux []event.FluxStep `json:"flux"`

	Slowest []Resource `json:"slowest_resources"`
	Retries []Retry    `json:"retries"`

	// Earlier is the number of runs that the medians are from. UsualSeconds is null unless one of them
	// changed the same stages.
	Earlier      int      `json:"earlier_runs"`
	UsualSeconds *float64 `json:"usual_seconds"`
	Slower       []Slower `json:"slower_than_usual"`

	Causes    []Cause     `json:"causes"`
	Diagnoses []Diagnosis `json:"diagnoses"`
	Notices   []string    `json:"notices"`
	Receipt   string      `json:"receipt,omitempty"`

	stages []*history.Stage // in the order in which they appear
}

// Counts are the totals of a run.
type Counts struct {
	Stages    map[string]int `json:"stages"`    // by result: ready, current, gone, failed …
	Resources map[string]int `json:"resources"` // that changed, by action: create, update, delete, import …
	Gates     map[string]int `json:"gates"`     // by result: open, failed, closed
	Retries   int            `json:"retries"`
}

// Changed is the number of resources that the run changed.
func (c Counts) Changed() (n int) {
	for _, count := range c.Resources {
		n += count
	}
	return n
}

// Stage is one stage of a run. Its duration includes waits between the steps, such as for a free slot.
type Stage struct {
	Name             string     `json:"name"`
	Layer            string     `json:"layer"`
	Result           string     `json:"result"` // of event.Result, or unfinished
	Reason           string     `json:"reason,omitempty"`
	Started          time.Time  `json:"started"`
	Ended            time.Time  `json:"ended"`
	Seconds          float64    `json:"seconds"`
	TerraformSeconds float64    `json:"terraform_seconds"`
	GateSeconds      float64    `json:"gate_seconds"`
	UsualSeconds     *float64   `json:"usual_seconds"`
	Steps            []Interval `json:"steps"`
	Gates            []Gate     `json:"gates"`
	Critical         bool       `json:"critical"` // on the critical path
}

// Interval is one step of a stage: Start seconds after the run began, and for Seconds.
type Interval struct {
	Step    string  `json:"step"`
	Start   float64 `json:"start"`
	Seconds float64 `json:"seconds"`
}

// Gate is one gate of a stage, with the time from the start of the wait.
type Gate struct {
	Name         string   `json:"name"`
	Result       string   `json:"result"` // open, failed, or closed when the run ended
	Reason       string   `json:"reason,omitempty"`
	Seconds      float64  `json:"seconds"`
	UsualSeconds *float64 `json:"usual_seconds"`
}

// Step is one step of the critical path: a stage, or the wait for its deferred gates.
type Step struct {
	Stage   string  `json:"stage"`
	Late    bool    `json:"late_gates"`
	Seconds float64 `json:"seconds"`
}

// Resource is a resource that Terraform changed or read.
type Resource struct {
	Stage   string  `json:"stage"`
	Address string  `json:"address"`
	Action  string  `json:"action"`
	Failed  bool    `json:"failed"`
	Seconds float64 `json:"seconds"`
}

// machineLine tells how a step of a rollout ended.
func machineLine(m history.Machine) string {
	how := map[bool]string{true: "failed after", false: "took"}[m.Failed]
	return fmt.Sprintf("%s: %s %s %s", m.Name, m.Action, how, Took(m.Seconds))
}

// Retry is one retry after a transient failure.
type Retry struct {
	Stage string    `json:"stage"`
	Step  string    `json:"step,omitempty"`
	Time  time.Time `json:"time"`
	Text  string    `json:"text"`
}

// Cause is the root cause of a failure.
type Cause struct {
	Text   string   `json:"text"`
	Next   string   `json:"next,omitempty"`
	Stages []string `json:"stages"`
	Gates  []string `json:"gates"`
	Follow int      `json:"follow"` // how many further gates are closed in consequence
}

// Diagnosis is the diagnosis of one closed gate or failed step.
type Diagnosis struct {
	Stage  string `json:"stage"`
	Gate   string `json:"gate,omitempty"`
	Waited string `json:"waited"`
	Seen   string `json:"seen"`
	Cause  string `json:"cause,omitempty"`
	Next   string `json:"next,omitempty"`
	Folder string `json:"folder,omitempty"`
}

// mostSlowest is how many of the slowest resources a report lists.
const mostSlowest = 10

// New sums up the events of a run, and compares it with earlier runs of the same kind. path is
// the critical path, if it is known.
func New(events []event.Event, path []Step, earlier ...*history.Timeline) Report {
	t := history.Fold(nil)
	for _, e := range events {
		t.Add(e.Visible())
	}
	r := sum(t)
	r.CriticalPath = append(r.CriticalPath, path...)
	for _, step := range path {
		r.CriticalSeconds += step.Seconds
		for i := range r.Stages {
			r.Stages[i].Critical = r.Stages[i].Critical || r.Stages[i].Name == step.Stage
		}
	}
	r.compare(t, slices.DeleteFunc(slices.Clone(earlier), func(e *history.Timeline) bool {
		return !strings.HasPrefix(e.Title, r.Kind+" ")
	}))
	slices.SortStableFunc(r.Slowest, func(a, b Resource) int { return cmp.Compare(b.Seconds, a.Seconds) })
	r.Slowest = r.Slowest[:min(len(r.Slowest), mostSlowest)]
	return r
}

// sum makes a report without a comparison and with all resources in Slowest.
func sum(t *history.Timeline) Report {
	r := Report{
		Run: t.ID, Result: unfinished, Began: t.Began, Ended: t.Ended, Seconds: t.Took().Seconds(),
		Stages: []Stage{}, CriticalPath: []Step{}, Slowest: []Resource{}, Retries: []Retry{},
		Flux:   append([]event.FluxStep{}, t.Flux...),
		Slower: []Slower{}, Causes: []Cause{}, Diagnoses: []Diagnosis{},
		Notices: append([]string{}, t.Notices...), Receipt: t.Receipt,
		Counts: Counts{Stages: map[string]int{}, Resources: map[string]int{}, Gates: map[string]int{},
			Retries: len(t.Retries)},
		stages: t.Whole.Stages,
	}
	r.Kind, r.Cluster, _ = strings.Cut(t.Title, " ")
	for _, s := range r.stages {
		r.addStage(s)
	}
	slices.SortStableFunc(r.Stages, func(a, b Stage) int { return a.Started.Compare(b.Started) })
	r.Machines = t.Machines
	for _, e := range t.Retries {
		r.Retries = append(r.Retries, Retry{Stage: e.Stage, Step: e.Step, Time: e.Time, Text: e.Text})
	}
	for _, e := range t.Diagnoses {
		if d := e.Diagnosis; d != nil {
			r.Diagnoses = append(r.Diagnoses, Diagnosis{Stage: e.Stage, Gate: e.Gate, Waited: d.Waited,
				Seen: d.Seen, Cause: d.Cause, Next: d.Next, Folder: d.Folder})
		}
	}
	if t.End != nil {
		r.end(*t.End)
	}
	return r
}

// end adds how the run ended.
func (r *Report) end(e event.Event) {
	if !e.Succeeded() {
		lines := strings.Split(e.Text, "\n") // stages that fail for the same reason repeat it
		r.Error = strings.Join(xslices.Deduplicate(lines, func(l string) string { return l }), "\n")
	}
	if end := e.Ending; end != nil {
		r.Result, r.ExitCode, r.Resume = string(end.Result), &end.ExitCode, end.Resume
		for _, c := range end.Causes {
			r.Causes = append(r.Causes, Cause{
				Text: c.Text, Next: c.Next, Stages: append([]string{}, c.Stages...),
				Gates: append([]string{}, c.Gates...), Follow: c.Follow,
			})
		}
	}
}

// addStage adds a stage, its gates and its resources.
func (r *Report) addStage(s *history.Stage) {
	one := Stage{
		Name: s.Stage, Layer: s.Layer, Result: cmp.Or(string(s.Result), unfinished), Reason: s.Reason,
		Started: s.Started, Ended: s.Ended, Seconds: s.Ended.Sub(s.Started).Seconds(),
		TerraformSeconds: s.Took(history.RunsTerraform).Seconds(), GateSeconds: s.Took(isGates).Seconds(),
		Steps: []Interval{}, Gates: []Gate{},
	}
	for _, step := range s.Steps {
		end := step.Ended
		if end.IsZero() {
			end = r.Ended
		}
		one.Steps = append(one.Steps, Interval{step.Name, step.Started.Sub(r.Began).Seconds(),
			end.Sub(step.Started).Seconds()})
	}
	for _, g := range s.Gates {
		if g.Wait == nil || g.Result == "" { // castle only checks the gates of a stage that is up to date
			continue
		}
		one.Gates = append(one.Gates, Gate{Name: g.Name, Result: string(g.Result),
			Reason: cmp.Or(g.Failure, g.Reason), Seconds: g.Took().Seconds()})
		r.Counts.Gates[string(g.Result)]++
	}
	r.Stages = append(r.Stages, one)
	r.Counts.Stages[one.Result]++
	for _, x := range s.Resources {
		if x.Ended.IsZero() {
			continue
		}
		if x.Took >= history.LeastSlow {
			r.Slowest = append(r.Slowest, Resource{Stage: s.Stage, Address: x.Address, Action: x.Action,
				Failed: x.Failed, Seconds: x.Took.Seconds()})
		}
		if !x.Failed && x.Action != "read" && x.Action != "no-op" {
			r.Counts.Resources[x.Action]++
		}
	}
}

// isGates accepts the steps in which castle waits for gates.
var isGates = history.Named(history.GatesStep)

// A duration is slower than usual if it is so many times the median, and so many seconds more.
const (
	slowerRatio   = 1.5
	slowerSeconds = 2
	mostSlower    = 10
)

// Slower is a part of the run that took longer than usual.
type Slower struct {
	Stage        string  `json:"stage"`
	Gate         string  `json:"gate,omitempty"`    // of the stage
	Address      string  `json:"address,omitempty"` // of a resource of the stage
	Seconds      float64 `json:"seconds"`
	UsualSeconds float64 `json:"usual_seconds"` // the median
	Ratio        float64 `json:"ratio"`
	Runs         int     `json:"runs"` // that the median is from
}

// String names the part with its ratio: "gate metallb webhook.objects took 2.3 × its usual".
func (s Slower) String() string {
	name := "stage " + s.Stage
	switch {
	case s.Gate != "":
		name = "gate " + s.Stage + " " + s.Gate
	case s.Address != "":
		name = "resource " + s.Stage + " " + s.Address
	}
	return fmt.Sprintf("%s took %.1f × its usual: %s, not %s", name, s.Ratio, Took(s.Seconds),
		Took(s.UsualSeconds))
}

// changedStages names the stages that a run changed: only runs with the same ones are comparable.
func changedStages(t *history.Timeline) string {
	var names []string
	for _, s := range t.Whole.Stages {
		if s.Changed() {
			names = append(names, s.Stage)
		}
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// compare adds the medians of earlier runs, and lists what took longer.
func (r *Report) compare(t *history.Timeline, before []*history.Timeline) {
	var wholes []time.Duration
	for _, b := range before {
		if len(b.Durations()) > 0 {
			r.Earlier++
		}
		if b.Succeeded() && t.Succeeded() && changedStages(b) == changedStages(t) {
			wholes = append(wholes, b.Took())
		}
	}
	r.UsualSeconds = seconds(history.Median(wholes))
	usually := history.Learn(before...)
	check := func(of history.Subject, took float64) *float64 {
		usual := seconds(usually.Of(of))
		if usual != nil && took >= slowerRatio**usual && took-*usual >= slowerSeconds {
			r.Slower = append(r.Slower, Slower{
				Stage: of.Stage, Gate: of.Gate, Address: of.Address, Seconds: took, UsualSeconds: *usual,
				Ratio: took / *usual, Runs: len(usually[of]),
			})
		}
		return usual
	}
	for i, s := range r.Stages {
		r.Stages[i].UsualSeconds = check(history.Subject{Stage: s.Name}, s.Seconds)
		for j, g := range s.Gates {
			gate := history.Subject{Stage: s.Name, Gate: g.Name}
			r.Stages[i].Gates[j].UsualSeconds = check(gate, g.Seconds)
		}
	}
	for _, x := range r.Slowest {
		check(history.Subject{Stage: x.Stage, Address: x.Address, Action: x.Action}, x.Seconds)
	}
	more := func(s Slower) float64 { return s.Seconds - s.UsualSeconds }
	slices.SortStableFunc(r.Slower, func(a, b Slower) int { return cmp.Compare(more(b), more(a)) })
	r.Slower = r.Slower[:min(len(r.Slower), mostSlower)]
}

// seconds is a duration in JSON; nil stays nil.
func seconds(d *time.Duration) *float64 {
	if d == nil {
		return nil
	}
	return new(d.Seconds())
}
