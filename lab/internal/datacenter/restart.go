package datacenter

import "time"

// restart is the fault api-restarts: the process is killed, and started anew on
// the data that etcd has kept. Until it answers, every address of the API refuses.
func (d *Datacenter) restart(c *cluster, after time.Duration) {
	select {
	case <-d.ctx.Done():
		return
	case <-time.After(after):
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cluster != c || !c.running() {
		return // its machines went first
	}
	d.begins("api-restarts")
	d.stopCluster()
	d.startCluster()
}

// answered is an API that answers, for the first time or again; the caller
// holds the mutex.
func (d *Datacenter) answered(c *cluster) {
	if d.underway("api-restarts") {
		d.ends("api-restarts")
		return
	}
	if after := d.config.Faults.Times["api-restarts"]; after != 0 && !c.answered {
		go d.restart(c, after)
	}
	c.answered = true
}
