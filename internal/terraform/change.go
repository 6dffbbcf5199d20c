package terraform

import (
	"slices"
	"sync"
	"time"
)

// Change is one planned or running change of a resource instance.
type Change struct {
	Address string // module.a.helm_release.b["c"]
	Type    string // helm_release
	Action  string // create, update, delete, replace, read, import, move or forget
	Reason  string // of a replace or delete, in Terraform's words: tainted, cannot_update …
	Phase   Phase
	ID      string  // the object's id, if Terraform has reported it
	Seconds float64 // since Started, in whole seconds as Terraform counts
}

// Phase tells how far a change has come.
type Phase string

// The phases of a change. A planned replacement is applied as a delete and a create.
const (
	Planned Phase = "planned"
	Started Phase = "started"
	Running Phase = "running" // repeated every ten seconds
	Done    Phase = "done"
	Failed  Phase = "failed"
)

// phases are the phases by the type of a message in Terraform's JSON stream.
var phases = map[string]Phase{
	"planned_change": Planned, "apply_start": Started, "apply_progress": Running,
	"apply_complete": Done, "apply_errored": Failed,
}

// changed makes a Change of a message, if it is about one.
func (m *message) changed() (Change, bool) {
	on := m.Hook
	if m.Type == "planned_change" {
		on = m.Change
	}
	if on == nil || on.Action == "noop" || phases[m.Type] == "" {
		return Change{}, false
	}
	c := Change{
		Address: on.Resource.Address, Type: on.Resource.Type, Action: on.Action,
		ID: on.IDValue, Reason: on.Reason, Phase: phases[m.Type], Seconds: on.Seconds,
	}
	if c.Action == "remove" { // from the state; it is not deleted
		c.Action = "forget"
	}
	if on.Importing != nil {
		c.ID = on.Importing.ID
	}
	return c, true
}

// Operation is a running Terraform command.
type Operation struct {
	Command   string // init, plan, apply, import …
	Since     time.Time
	Resources []ResourceOperation // the oldest first
}

// ResourceOperation is a resource that Terraform is changing.
type ResourceOperation struct {
	Address string
	Action  string // create, update, delete …
	Since   time.Time
}

// Operation returns the running command, or nil. It may be called beside any other
// method.
func (r *Root) Operation() *Operation {
	r.operation.mu.Lock()
	defer r.operation.mu.Unlock()
	if r.operation.now == nil {
		return nil
	}
	now := *r.operation.now
	now.Resources = slices.Clone(now.Resources)
	return &now
}

// operation follows a root's commands, one after the other.
type operation struct {
	mu  sync.Mutex
	now *Operation
}

func (o *operation) begin(command string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.now = &Operation{Command: command, Since: time.Now()}
}

func (o *operation) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.now = nil
}

func (o *operation) update(c Change) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch c.Phase {
	case Started:
		o.now.Resources = append(o.now.Resources, ResourceOperation{Address: c.Address, Action: c.Action, Since: time.Now()})
	case Done, Failed:
		o.now.Resources = slices.DeleteFunc(o.now.Resources, func(r ResourceOperation) bool {
			return r.Address == c.Address && r.Action == c.Action
		})
	}
}
