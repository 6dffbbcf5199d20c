// Package event is the one shape in which a run tells what happens. The
// reporter shows events, the journal keeps them and the report sums them up,
// so all three agree.
package event

import "time"

// Kind says what happened.
type Kind string

// The kinds, in the order in which a run may send them.
const (
	RunStarted         Kind = "run_started"
	Reviewed           Kind = "reviewed"         // the run applies a plan that was saved before; with Reviewed
	StageStarted       Kind = "stage_started"    // everything it needs is open
	StepStarted        Kind = "step_started"     // adopt, plan, preflight, apply, gates, destroy …
	StepEnded          Kind = "step_ended"       // with Seconds
	ResourceStarted    Kind = "resource_started" // Terraform began with one resource
	Resource           Kind = "resource"         // and finished with it
	Retry              Kind = "retry"            // a step failed for a reason that passes; Seconds until it is tried again
	GateClosed         Kind = "gate_closed"      // a new reason why a gate is closed
	ReconcileTriggered Kind = "gate_nudged"      // a closed gate asked controllers to reconcile
	GateOpen           Kind = "gate_open"
	StageReady         Kind = "stage_ready"
	StageCurrent       Kind = "stage_current" // nothing to do: fingerprint unchanged, gates open
	StageGone          Kind = "stage_gone"    // destroyed
	StageFailed        Kind = "stage_failed"  // with Text
	StageStopped       Kind = "stage_stopped" // interrupted with its run
	Diagnosed          Kind = "diagnosed"     // why a stage failed, as far as its surroundings say; with Diagnosis
	StageSkipped       Kind = "stage_skipped" // because what it needs failed: Text names it
	Notice             Kind = "notice"        // one line a user should read
	Receipted          Kind = "receipt"       // what a destroy has proved; with Receipt
	Interrupted        Kind = "interrupted"   // by its user, each time; with Interruption
	Waiting            Kind = "waiting"       // what an interrupted run still waits for, now and then; with Interruption
	RunEnded           Kind = "run_ended"
)

// Event is one thing that happened in a run. Text never holds a secret: it is
// masked before it is sent.
type Event struct {
	Time    time.Time `json:"time"`
	Run     string    `json:"run,omitempty"`
	Kind    Kind      `json:"kind"`
	Layer   string    `json:"layer,omitempty"`
	Stage   string    `json:"stage,omitempty"`
	Step    string    `json:"step,omitempty"`
	Gate    string    `json:"gate,omitempty"`
	Address string    `json:"address,omitempty"` // a resource's address in its module
	Action  string    `json:"action,omitempty"`  // create, update, delete, import …
	Text    string    `json:"text,omitempty"`
	Seconds float64   `json:"seconds,omitempty"`

	Reviewed     *ReviewedPlan `json:"reviewed,omitempty"`
	Diagnosis    *Diagnosis    `json:"diagnosis,omitempty"`
	Receipt      *Receipt      `json:"receipt,omitempty"`
	Interruption *Interruption `json:"interruption,omitempty"`
}

// ReviewedPlan is the file of a saved plan.
type ReviewedPlan struct {
	File   string    `json:"file"`
	SHA256 string    `json:"sha256"`
	Run    string    `json:"run"` // that made it
	Made   time.Time `json:"made"`
}

// Diagnosis is what a person needs to go on from a closed gate or a failed step.
type Diagnosis struct {
	Waited string    `json:"waited"`          // what was waited for
	Seen   string    `json:"seen"`            // what was there instead
	Since  time.Time `json:"since"`           // since when that was so
	Cause  string    `json:"cause,omitempty"` // the likely one; empty if none is known
	Next   string    `json:"next,omitempty"`  // the command to look further, or the way out
	Folder string    `json:"folder"`          // where everything is that was found; empty if it was not kept
}
