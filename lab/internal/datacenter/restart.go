package datacenter

import "time"

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
