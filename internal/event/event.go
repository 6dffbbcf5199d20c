// Package event defines the events of a run. The reporter prints them, the journal keeps them and the report
// sums them up, so that all three agree. Events hold no secret: a run masks every text before it sends it.
// JSON names and values are file formats.
package event

import (
	"fmt"
	"slices"
	"time"

	"github.com/ephemeral-castle/castle/internal/foreign"
)

// Kind is the type of an event.
type Kind string

// The kinds, in the order in which a run may send them.
const (
	RunStarted         Kind = "run_started"
	Reviewed           Kind = "reviewed"            // the run applies a saved plan; with Reviewed
	StagesSelected     Kind = "stages_selected"     // a create or destroy begins to work; with Selection
	StageDrifted       Kind = "stage_drifted"       // what it owns differs from its last apply, by Text
	StageStarted       Kind = "stage_started"       // everything that it needs is ready
	StepStarted        Kind = "step_started"        // adopt, plan, preflight, apply, gates, destroy …
	StepEnded          Kind = "step_ended"          // with Seconds
	ResourceStarted    Kind = "resource_started"    // Terraform starts to change a resource
	Resource           Kind = "resource"            // and has changed it
	Retry              Kind = "retry"               // after a transient failure; Seconds until the next try
	GateClosed         Kind = "gate_closed"         // a new reason why a gate is closed
	ReconcileTriggered Kind = "reconcile_triggered" // a closed gate asked controllers to reconcile
	GateOpen           Kind = "gate_open"
	GateFailed         Kind = "gate_failed"    // it timed out or can never open, which ends its stage
	FluxConverged      Kind = "flux_converged" // the gate of Flux has opened; with Flux
	StageReady         Kind = "stage_ready"
	StageUpToDate      Kind = "stage_up_to_date" // nothing to apply, gates open
	StageGone          Kind = "stage_gone"       // destroyed
	StageFailed        Kind = "stage_failed"     // with Text
	StageStopped       Kind = "stage_stopped"    // interrupted with its run
	Diagnosed          Kind = "diagnosed"        // why a stage failed; with Diagnosis
	StageSkipped       Kind = "stage_skipped"    // a stage that it needs did not get ready: Text names it
	MachineStarted     Kind = "machine_started"  // a step of a rollout: Action on Machine, by Text
	MachineProgress    Kind = "machine_progress" // what the step does, or waits for
	MachineReady       Kind = "machine_ready"    // with Seconds
	MachineFailed      Kind = "machine_failed"   // with Text
	Notice             Kind = "notice"           // one line a user should read
	Receipted          Kind = "receipt"          // with Receipt
	Interrupted        Kind = "interrupted"      // once for each interrupt; with Interruption
	Waiting            Kind = "waiting"          // from time to time after an interrupt; with Interruption
	RunEnded           Kind = "run_ended"        // Text is RunOK or the error; with Ending
	ConfigError        Kind = "config_error"     // in the configuration, of no run: Text, File, Line

	// Of a run over many clusters, which also passes on the events of their runs.
	WaveApproved   Kind = "wave_approved"   // by By, with the configuration Digest
	WaveStarted    Kind = "wave_started"    // Text names its clusters
	ClusterStarted Kind = "cluster_started" // the command begins for Cluster
	ClusterEnded   Kind = "cluster_ended"   // with Ending; Text is the reason if it did not succeed
	ClusterSkipped Kind = "cluster_skipped" // the run did not begin it: Text is why
	WaveEnded      Kind = "wave_ended"      // Text is RunOK or why the run ends here
)

// Durable reports whether an event of this kind is on disk before the run goes on, with all that come before
// it. A stage starts before its first step, which is durable. How a stage ended is in its files, and the next
// step of any stage, or the end of the run, brings the event to the disk.
func (k Kind) Durable() bool {
	switch k {
	case StagesSelected, StageStarted, GateClosed, ReconcileTriggered, GateOpen, GateFailed, Notice,
		FluxConverged, ResourceStarted, Resource, StageReady, StageUpToDate, StageGone, Interrupted, Waiting,
		MachineProgress, MachineReady:
		return false
	}
	return true
}

// Event is one change of state in a run.
type Event struct {
	Time    time.Time `json:"time"`
	Run     string    `json:"run,omitempty"`
	Kind    Kind      `json:"kind"`
	Layer   string    `json:"layer,omitempty"`
	Stage   string    `json:"stage,omitempty"`
	Step    string    `json:"step,omitempty"`
	Gate    string    `json:"gate,omitempty"`
	Address string    `json:"address,omitempty"` // of a resource in its module
	Action  string    `json:"action,omitempty"`  // create, update, delete, import …; of a step of a rollout
	Machine string    `json:"machine,omitempty"` // worker-01
	Wave    string    `json:"wave,omitempty"`    // of a run over many clusters
	Cluster string    `json:"cluster,omitempty"` // blue/proxmox: in a run over many, the one that it is about
	Text    string    `json:"text,omitempty"`
	Seconds float64   `json:"seconds,omitempty"`
	By      string    `json:"by,omitempty"`      // of RunStarted, WaveApproved: user@host
	Command string    `json:"command,omitempty"` // of RunStarted, without values of --var
	// Total is the number of gates on a StepStarted, and that of the resources in the plan on a
	// ResourceStarted; 0 if it is not known.
	Total int `json:"total,omitempty"`
	// TimeoutSeconds is how long the gate of a GateClosed may stay closed.
	TimeoutSeconds float64 `json:"timeout_seconds,omitempty"`
	// Cause reports that the text of a GateClosed is a known cause, and no consequence of another one.
	Cause bool `json:"cause,omitempty"`
	// Digest identifies the configuration to which a ClusterEnded brought the cluster, or that of the
	// clusters of a WaveApproved.
	Digest string `json:"digest,omitempty"`
	// File and Line are the place of a ConfigError. The file may also be a flag, such as --var.
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"`

	Selection    *Selection    `json:"selection,omitempty"`
	Reviewed     *ReviewedPlan `json:"reviewed,omitempty"`
	Diagnosis    *Diagnosis    `json:"diagnosis,omitempty"`
	Receipt      *Receipt      `json:"receipt,omitempty"`
	Interruption *Interruption `json:"interruption,omitempty"`
	Ending       *Ending       `json:"ending,omitempty"`
	Flux         *[]FluxStep   `json:"flux,omitempty"` // in the order in which they became ready
}

// RunOK is the Text of RunEnded if the run had no error.
const RunOK = "ok"

// Succeeded reports whether the event ends a run that had no error.
func (e Event) Succeeded() bool { return e.Kind == RunEnded && e.Text == RunOK }

// Masked returns the event with its texts passed through hide. Names of stages, gates and steps stay: they
// are the configuration's own.
func (e Event) Masked(hide func(string) string) Event {
	e.Address, e.Text, e.Command = hide(e.Address), hide(e.Text), hide(e.Command)
	if e.Diagnosis != nil {
		masked := e.Diagnosis.Masked(hide)
		e.Diagnosis = &masked
	}
	if e.Receipt != nil {
		masked := e.Receipt.Masked(hide)
		e.Receipt = &masked
	}
	if e.Interruption != nil {
		masked := *e.Interruption
		masked.Operations = slices.Clone(masked.Operations)
		for i := range masked.Operations {
			masked.Operations[i].Address = hide(masked.Operations[i].Address)
		}
		e.Interruption = &masked
	}
	if e.Ending != nil {
		masked := e.Ending.Masked(hide)
		e.Ending = &masked
	}
	if e.Flux != nil {
		masked := slices.Clone(*e.Flux)
		for i, s := range masked {
			s.Name, s.AppliedBy, s.Reason = hide(s.Name), hide(s.AppliedBy), hide(s.Reason)
			s.DependsOn = each(s.DependsOn, hide)
			masked[i] = s
		}
		e.Flux = &masked
	}
	return e
}

// Visible returns the event with its texts and names as a terminal and a runner may have them.
func (e Event) Visible() Event {
	for _, name := range []*string{&e.Run, &e.Layer, &e.Stage, &e.Step, &e.Gate, &e.Action, &e.Machine,
		&e.By, &e.Wave, &e.Cluster} {
		*name = foreign.Text(*name)
	}
	e.Kind = Kind(foreign.Text(string(e.Kind)))
	e = e.Masked(foreign.Text)
	if e.Ending != nil {
		e.Ending.Result = Outcome(foreign.Text(string(e.Ending.Result)))
		stages := map[Result]int{}
		for result, n := range e.Ending.Stages {
			stages[Result(foreign.Text(string(result)))] = n
		}
		e.Ending.Stages = stages
	}
	return e
}

// Selection lists the stages that a run creates or destroys, in an order that respects their needs.
type Selection struct {
	Command string          `json:"command"` // create or destroy; a recreate does one after the other
	Stages  []SelectedStage `json:"stages"`
}

// SelectedStage is a stage and the selected stages that the run completes before it.
type SelectedStage struct {
	Layer string   `json:"layer"`
	Stage string   `json:"stage"`
	Needs []string `json:"needs,omitempty"`
	// GatesNeed are those that only its deferred gates wait for.
	GatesNeed []string `json:"gates_need,omitempty"`
}

// ReviewedPlan names the file of a saved plan and the run that made it.
type ReviewedPlan struct {
	File   string    `json:"file"`
	SHA256 string    `json:"sha256"`
	Run    string    `json:"run"`
	Made   time.Time `json:"made"`
}

// Diagnosis explains why a gate stayed closed or a step failed, and the next step to take.
type Diagnosis struct {
	Waited string    `json:"waited"`          // the condition that was waited for
	Seen   string    `json:"seen"`            // the state that was observed instead
	Since  time.Time `json:"since"`           // when Seen began
	Cause  string    `json:"cause,omitempty"` // the likely one; empty: none is known
	Next   string    `json:"next,omitempty"`  // the command to look further, or the fix
	Folder string    `json:"folder"`          // holds everything that was found; empty: not kept
}

// Masked returns the diagnosis with its texts passed through hide.
func (d Diagnosis) Masked(hide func(string) string) Diagnosis {
	d.Waited, d.Seen, d.Cause, d.Next = hide(d.Waited), hide(d.Seen), hide(d.Cause), hide(d.Next)
	return d
}

// FluxStep is a Kustomization or HelmRelease of Flux with the time that it took.
type FluxStep struct {
	Name      string     `json:"name"`       // kustomization flux-system/apps
	AppliedBy string     `json:"applied_by"` // the Kustomization that declares it; empty: none
	DependsOn []string   `json:"depends_on"`
	Waits     bool       `json:"waits"` // it is ready only when its objects are
	Created   time.Time  `json:"created"`
	Ready     *time.Time `json:"ready"` // since; null while it is not
	// Seconds is the time from the last of what it waits for, or its creation, until it was ready. It is null
	// if it is not ready, or was ready before.
	Seconds  *float64 `json:"seconds"`
	Reason   string   `json:"reason,omitempty"` // why it is not ready
	Critical bool     `json:"critical"`         // on the chain that made the convergence long
}

// Interruption names the steps that an interrupted run still waits for.
type Interruption struct {
	Times      int         `json:"times"` // interrupts so far
	Operations []Operation `json:"operations"`
}

// Operation is a Terraform command in progress, or one resource that it changes.
type Operation struct {
	Layer   string    `json:"layer"`
	Stage   string    `json:"stage"`
	Command string    `json:"command"`           // init, plan, apply …
	Address string    `json:"address,omitempty"` // of the resource
	Action  string    `json:"action,omitempty"`  // create, update, delete …
	Since   time.Time `json:"since"`
}

// Receipt lists the objects that a destroy verified.
type Receipt struct {
	Run     string        `json:"run"`
	Cluster string        `json:"cluster"`
	Proved  bool          `json:"proved"` // every object is verified gone, Unverified excepted
	Objects []OwnedObject `json:"resources"`
	Kept    []KeptStage   `json:"remaining"`
	// Unverified are resources that Terraform reports deleted and castle cannot check.
	Unverified []string `json:"unverified"`
	// Unknown are machines with the name and the tags of the cluster, or with the uuid of one of its
	// machines, that no state knows: castle leaves them.
	Unknown []string `json:"unknown,omitempty"`
	// Saved lists the data that outlive the cluster.
	Saved []SavedData `json:"saved,omitempty"`
	// Disk lists what stays of the cluster on the disk of the state directory.
	Disk []KeptPath `json:"disk,omitempty"`
}

// SavedData are data that were saved and proved before the cluster ended.
type SavedData struct {
	Name  string    `json:"name"` // the label of their survives block
	Save  string    `json:"save"` // its id
	Place string    `json:"place"`
	Time  time.Time `json:"time"`
	Bytes int64     `json:"bytes"`
}

// KeptPath is a file or folder that a destroy keeps.
type KeptPath struct {
	Path    string `json:"path"`
	Holds   string `json:"holds"`
	Secrets bool   `json:"secrets"` // it may hold some
	Until   string `json:"until"`   // how long it stays
}

// Masked returns the receipt with its texts passed through hide.
func (r Receipt) Masked(hide func(string) string) Receipt {
	r.Objects, r.Unverified = slices.Clone(r.Objects), each(r.Unverified, hide)
	r.Unknown = each(r.Unknown, hide)
	for i, o := range r.Objects {
		o.ID, o.Where, o.Reason, o.Fix = hide(o.ID), hide(o.Where), hide(o.Reason), hide(o.Fix)
		r.Objects[i] = o
	}
	return r
}

// each returns the texts passed through hide.
func each(texts []string, hide func(string) string) []string {
	texts = slices.Clone(texts)
	for i, text := range texts {
		texts[i] = hide(text)
	}
	return texts
}

// OwnedObject is an object that a destroyed stage owned, and whether it is gone.
type OwnedObject struct {
	Stage string `json:"stage"`
	// machine, disk, image, snippet, file, kubeconfig, talosconfig, state …
	Kind   string `json:"kind"`
	ID     string `json:"id"`               // 421, local-lvm:vm-421-disk-0, a path
	Where  string `json:"where,omitempty"`  // node proxmox
	Gone   bool   `json:"gone"`             // verified with the system that holds it
	Reason string `json:"reason,omitempty"` // why it still exists, or what replaced it
	Fix    string `json:"fix,omitempty"`    // how to remove it
}

// Identity returns the object without what may change: whether it is gone, and why.
func (o OwnedObject) Identity() OwnedObject {
	return OwnedObject{Stage: o.Stage, Kind: o.Kind, ID: o.ID, Where: o.Where}
}

// KeptStage is a stage that a destroy keeps.
type KeptStage struct {
	Stage  string `json:"stage"`
	Reason string `json:"reason"`
}

// Result is how a stage ended. The values are part of reports in JSON.
type Result string

// The results of a stage; a stage that never ended has none.
const (
	ResultReady       Result = "ready"
	ResultUpToDate    Result = "up_to_date"
	ResultGone        Result = "gone"
	ResultFailed      Result = "failed"
	ResultInterrupted Result = "interrupted"
	ResultSkipped     Result = "skipped"
)

// Ends returns how an event of this kind ends a stage, and whether it does.
func (k Kind) Ends() (Result, bool) {
	r, ends := results[k]
	return r, ends
}

// results are how the kinds of events that end a stage end it.
var results = map[Kind]Result{
	StageReady: ResultReady, StageUpToDate: ResultUpToDate, StageGone: ResultGone,
	StageFailed: ResultFailed, StageSkipped: ResultSkipped, StageStopped: ResultInterrupted,
}

// Outcome is how a run ended. The values are part of journals and of reports in JSON.
type Outcome string

// The outcomes of a run.
const (
	OutcomeSucceeded   Outcome = "succeeded"
	OutcomeFailed      Outcome = "failed"
	OutcomeRefused     Outcome = "refused" // castle refused to start or to go on, such as after a preflight
	OutcomeInterrupted Outcome = "interrupted"
)

// Ending sums up a run that has ended.
type Ending struct {
	Result   Outcome        `json:"result"`
	ExitCode int            `json:"exit_code"`
	Stages   map[Result]int `json:"stages"` // how many stages ended so
	Seconds  float64        `json:"seconds"`
	Causes   []Cause        `json:"causes"`           // root causes, the most important first
	Resume   string         `json:"resume,omitempty"` // the exact command
}

// Cause is a root cause of a failed run.
type Cause struct {
	Text   string   `json:"text"`
	Next   string   `json:"next,omitempty"`   // how to look further, or the fix
	Stages []string `json:"stages,omitempty"` // that failed for it
	Gates  []string `json:"gates,omitempty"`  // that are closed for it, the first one found first
	Follow int      `json:"follow,omitempty"` // how many further gates are closed in consequence
}

// Following says how many further gates are closed in consequence of a cause.
func Following(n int) string {
	if n == 1 {
		return "1 further gate follows from it"
	}
	return fmt.Sprintf("%d further gates follow from it", n)
}

// Masked returns the ending with its texts passed through hide. The names of stages and gates stay.
func (e Ending) Masked(hide func(string) string) Ending {
	e.Causes, e.Resume = slices.Clone(e.Causes), hide(e.Resume)
	for i, c := range e.Causes {
		e.Causes[i].Text, e.Causes[i].Next = hide(c.Text), hide(c.Next)
	}
	return e
}
