package datacenter

import (
	"strings"
	"sync"

	"github.com/ephemeral-castle/castle/internal/emulator/tailscale"
	"github.com/ephemeral-castle/castle/internal/emulator/talos"
)

// tailnet is the tailnet that machines with the extension tailscale join.
type tailnet struct {
	server *tailscale.Server

	mu sync.Mutex
	// joined are the host names by address of machine. A machine that has joined keeps its login on its disk.
	joined map[string]string
}

func newTailnet(c Config) *tailnet {
	return &tailnet{joined: map[string]string{}, server: tailscale.New(tailscale.Config{
		ClientID: c.Keys.OAuth[0], ClientSecret: c.Keys.OAuth[1], Tags: c.TailnetTags,
		Domain: "lab.ts.net"})}
}

// join is a machine whose extension has got its environment. TS_AUTH_ONCE: one that is logged in stays so.
func (t *tailnet) join(m talos.MachineSpec, say func(string, ...any)) {
	environment := map[string]string{}
	for _, one := range m.Extensions["tailscale"] {
		name, value, _ := strings.Cut(one, "=")
		environment[name] = value
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if environment["TS_AUTHKEY"] == "" || t.joined[m.Address] != "" {
		return
	}
	device, err := t.server.Register(environment["TS_AUTHKEY"], environment["TS_HOSTNAME"])
	if err != nil {
		say("talos %s: tailscale: %v", m.Address, err)
		return
	}
	t.joined[m.Address] = device.Hostname
	say("talos %s: tailscale: joined as %s", m.Address, device.Name)
}

// leave is the end of a machine's disk. Its device stays, as somebody has to delete it.
func (t *tailnet) leave(address string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if name := t.joined[address]; name != "" {
		t.server.Disconnect(name)
	}
	delete(t.joined, address)
}
