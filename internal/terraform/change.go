package terraform

// Change is what Terraform does, or would do, to one resource instance.
type Change struct {
	Address  string // module.a.helm_release.b["c"]
	Type     string // helm_release
	Provider string // as the type's name says it: helm
	Action   string // create, update, delete, replace, read, import, move or forget
	Reason   string // why it is replaced or deleted, in Terraform's words: tainted, cannot_update …
	Phase    Phase
	ID       string  // the object's id, if Terraform has said it
	Seconds  float64 // since Started, in whole seconds as Terraform counts
}

// Phase says how far a change has come.
type Phase string

// The phases of a change. A replacement that was planned is applied as a delete
// and a create.
const (
	Planned Phase = "planned"
	Started Phase = "started"
	Running Phase = "running" // said again every ten seconds
	Done    Phase = "done"
	Failed  Phase = "failed"
)

// phase returns what a message of Terraform's JSON stream tells of a change, or "".
func phase(messageType string) Phase {
	switch messageType {
	case "planned_change":
		return Planned
	case "apply_start":
		return Started
	case "apply_progress":
		return Running
	case "apply_complete":
		return Done
	case "apply_errored":
		return Failed
	}
	return ""
}

// changed makes a Change of a message, if it is about one.
func (m *message) changed() (Change, bool) {
	what := m.Hook
	if m.Type == "planned_change" {
		what = m.Change
	}
	if what == nil || what.Action == "noop" || phase(m.Type) == "" {
		return Change{}, false
	}
	c := Change{
		Address: what.Resource.Address, Type: what.Resource.Type, Provider: what.Resource.Provider,
		Action: what.Action, ID: what.IDValue, Reason: what.Reason, Phase: phase(m.Type), Seconds: what.Seconds,
	}
	if c.Action == "remove" { // from the state; it is not deleted
		c.Action = "forget"
	}
	if what.Importing != nil {
		c.ID = what.Importing.ID
	}
	return c, true
}
