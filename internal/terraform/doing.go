package terraform

import (
	"slices"
	"sync"
	"time"
)

// Doing is the Terraform command that runs now.
type Doing struct {
	Command string // init, plan, apply, import …
	Since   time.Time
	Begun   []Begun // the oldest first
}

// Begun is a resource that Terraform has begun to change and not finished.
type Begun struct {
	Address string
	Action  string // create, update, delete …
	Since   time.Time
}

// Doing returns the command that runs now, or nil. It may be called beside any
// other method.
func (r *Root) Doing() *Doing {
	r.doing.mu.Lock()
	defer r.doing.mu.Unlock()
	if r.doing.now == nil {
		return nil
	}
	now := *r.doing.now
	now.Begun = slices.Clone(now.Begun)
	return &now
}

// doing follows a root's commands, one after the other.
type doing struct {
	mu  sync.Mutex
	now *Doing
}

func (d *doing) begin(command string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.now = &Doing{Command: command, Since: time.Now()}
}

func (d *doing) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.now = nil
}

func (d *doing) see(c Change) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch c.Phase {
	case Started:
		d.now.Begun = append(d.now.Begun, Begun{Address: c.Address, Action: c.Action, Since: time.Now()})
	case Done, Failed:
		d.now.Begun = slices.DeleteFunc(d.now.Begun, func(b Begun) bool { return b.Address == c.Address && b.Action == c.Action })
	}
}
