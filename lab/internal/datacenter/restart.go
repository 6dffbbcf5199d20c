package datacenter

import (
	"time"

	"github.com/ephemeral-castle/castle/internal/emulator/talos"
)

// serverStart is how long the API server of a control plane takes to restart: the old one ends, and the new
// one reads everything.
const serverStart = 15 * time.Second

// restartServer is a control plane whose configuration names another release of the API server. One process
// stands for the API servers of all control planes: nobody reaches it at this machine until the new one
// would be up. The caller holds the mutex.
func (k *kube) restartServer(m talos.MachineSpec) {
	c := k.cluster
	k.log.say("kubernetes: the API server of %s restarts as %s", m.Hostname, m.APIServerVersion)
	k.shut(m.Address)
	if before := c.starting[m.Address]; before != nil {
		before.Stop()
	}
	var timer *time.Timer
	timer = time.AfterFunc(scaled(serverStart, k.config.Speed), func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.cluster != c || c.starting[m.Address] != timer {
			return
		}
		delete(c.starting, m.Address)
		if now, on := k.machines[m.Address]; on && c.running() {
			k.certify(c, now, func() { k.open(m.Address, m.Address) })
		}
	})
	c.starting[m.Address] = timer
}

// restart is the fault api-restarts: it kills the process, and starts a new one on etcd's data.
// Until that one answers, every address of the API refuses connections.
func (k *kube) restart(c *cluster, after time.Duration) {
	select {
	case <-k.ctx.Done():
		return
	case <-time.After(after):
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.cluster != c || !c.running() {
		return // its machines went first
	}
	k.log.begins("api-restarts")
	k.stopCluster()
	k.startCluster()
}

// answered is an API that answers, for the first time or again; the caller
// holds the mutex.
func (k *kube) answered(c *cluster) {
	if k.log.underway("api-restarts") {
		k.log.ends("api-restarts")
		return
	}
	if after := k.config.Faults.Times["api-restarts"]; after != 0 && !c.answered {
		go k.restart(c, after)
	}
	c.answered = true
}
