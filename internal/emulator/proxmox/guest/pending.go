package guest

import (
	"maps"

	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/option"
	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/rpc"
)

// follows reports whether a new value of an option takes effect at once.
func (g *Guest) follows(key, value string) bool {
	return !g.Running || option.IsLive(g.Config, key, value)
}

// assign changes an option: at once, or, where a running guest cannot follow, at its next start. "" removes
// it.
func (g *Guest) assign(s *Guests, key, value string) {
	delete(g.Pending, key)
	switch {
	case g.Config[key] == value:
	case !g.follows(key, value):
		if g.Pending == nil {
			g.Pending = map[string]string{}
		}
		g.Pending[key] = value
	default:
		if option.IsDrive(key) && !sameVolume(g.Config[key], value) {
			g.detach(s, key)
		}
		g.Set(key, value)
	}
}

// sameVolume reports whether two drives have one volume.
func sameVolume(a, b string) bool {
	return option.Parse(a, "file")["file"] == option.Parse(b, "file")["file"]
}

// settle applies what has waited for the guest's start: at the end of a stop that Proxmox was asked for, else
// at the start itself.
func (g *Guest) settle(s *Guests) {
	waiting := g.Pending
	g.Pending = nil
	for _, key := range sortedKeys(waiting) {
		g.assign(s, key, waiting[key])
	}
}

// planned is the guest with everything that waits for its start.
func (g *Guest) planned() *Guest {
	p := *g
	p.Config = maps.Clone(g.Config)
	for key, value := range g.Pending {
		p.Set(key, value)
	}
	return &p
}

// showConfig shows what waits for the guest's start as if it were applied, unless the caller asks for the
// current values.
func showConfig(c *rpc.Call, g *Guest) (any, error) {
	out := g.planned().show()
	if c.Flag("current") {
		out = g.show()
	}
	out["digest"] = g.digest()
	return out, nil
}

// showPending lists every option, with what waits for the guest's start.
func showPending(_ *rpc.Call, g *Guest) (any, error) {
	now, then := g.show(), g.planned().show()
	rows := []any{}
	for _, key := range sortedKeys(now) {
		row := map[string]any{"key": key, "value": now[key]}
		if value, waits := g.Pending[key]; waits && value == "" {
			row["delete"] = 1
		} else if waits {
			row["pending"] = then[key]
		}
		rows = append(rows, row)
	}
	for _, key := range sortedKeys(g.Pending) {
		if now[key] == nil {
			rows = append(rows, map[string]any{"key": key, "pending": then[key]})
		}
	}
	return rows, nil
}
