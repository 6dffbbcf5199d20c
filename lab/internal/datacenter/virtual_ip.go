package datacenter

import (
	"maps"
	"time"
)

// virtualIP records the new holder of a virtual address; "" is none. The holder's API server answers
// there. Clients have to reconnect after a move, as in a real
// network.
func (k *kube) virtualIP(virtual, holder string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	first := len(k.holders) == 0
	k.holders[virtual] = holder
	if holder == "" {
		k.log.say("talos: nobody holds %s", virtual)
	} else {
		k.log.say("talos: %s holds %s", holder, virtual)
	}
	if c := k.cluster; c != nil && c.running() {
		if door := c.doors[virtual]; door != nil {
			door.cut()
		}
		k.follow(virtual)
	}
	if after := k.config.Faults.Times["vip-moves"]; first && after != 0 {
		go k.moveVirtualIP(virtual, after)
	}
}

// heldAddresses are the holders of the virtual addresses.
func (k *kube) heldAddresses() map[string]string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return maps.Clone(k.holders)
}

// follow opens or shuts a virtual address: its holder keeps it while its API server restarts. The caller
// holds the mutex.
func (k *kube) follow(virtual string) {
	holder := k.holders[virtual]
	if holder == "" || k.cluster.doors[holder] == nil {
		k.shut(virtual)
		return
	}
	k.open(virtual, holder)
}

// moveVirtualIP is the fault vip-moves. It waits for a second control plane if
// none stands in line yet.
func (k *kube) moveVirtualIP(virtual string, after time.Duration) {
	next := time.NewTimer(after)
	defer next.Stop()
	for {
		select {
		case <-k.ctx.Done():
			return
		case <-next.C:
		}
		if len(k.fleet.InLine(virtual)) > 1 {
			break
		}
		next.Reset(100 * time.Millisecond)
	}
	k.log.begins("vip-moves")
	if err := k.fleet.MoveVirtualIP(virtual, ""); err != nil {
		k.log.say("fault vip-moves: %v", err)
	}
	k.log.ends("vip-moves")
}
