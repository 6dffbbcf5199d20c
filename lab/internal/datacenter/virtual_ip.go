package datacenter

import "time"

// virtualIP hears that a virtual address has another holder; "" is none. The
// Kubernetes API answers there for as long as somebody holds it. What was
// connected while it moved has to connect anew, as outside.
func (d *Datacenter) virtualIP(virtual, holder string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	first := len(d.holders) == 0
	d.holders[virtual] = holder
	if holder == "" {
		d.say("talos: nobody holds %s", virtual)
	} else {
		d.say("talos: %s holds %s", holder, virtual)
	}
	if c := d.cluster; c != nil && c.running() {
		if door := c.doors[virtual]; door != nil {
			door.cut()
		}
		d.follow(virtual)
	}
	if after := d.config.Faults.Times["vip-moves"]; first && after != 0 {
		go d.moveVirtualIP(virtual, after)
	}
}

// follow opens or shuts a virtual address; the caller holds the mutex.
func (d *Datacenter) follow(virtual string) {
	if d.holders[virtual] == "" {
		d.shut(virtual)
		return
	}
	d.open(virtual)
}

// moveVirtualIP is the fault vip-moves. It waits for a second control plane if
// none stands in line yet.
func (d *Datacenter) moveVirtualIP(virtual string, after time.Duration) {
	next := time.NewTimer(after)
	defer next.Stop()
	for {
		select {
		case <-d.ctx.Done():
			return
		case <-next.C:
		}
		if len(d.fleet.InLine(virtual)) > 1 {
			break
		}
		next.Reset(100 * time.Millisecond)
	}
	d.begins("vip-moves")
	if err := d.fleet.MoveVirtualIP(virtual, ""); err != nil {
		d.say("fault vip-moves: %v", err)
	}
	d.ends("vip-moves")
}
