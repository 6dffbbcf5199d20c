package datacenter

import (
	"context"
	"maps"
	"net"
	"net/url"
	"slices"
)

// balance puts a load balancer at the cluster's endpoint, unless that is a virtual address or a control
// plane's own. It passes connections to one control plane after another, of those whose API server answers.
// The caller holds the mutex.
func (k *kube) balance(c *cluster) {
	endpoint, err := url.Parse(c.spec.Endpoint)
	if err != nil {
		k.log.say("load balancer: %v", err)
		return
	}
	found, err := net.DefaultResolver.LookupNetIP(k.ctx, "ip", endpoint.Hostname())
	if err != nil {
		k.log.say("load balancer: %v", err)
		return
	}
	address := found[0].Unmap()
	_, machine := k.machines[address.String()]
	if machine || slices.Contains(c.spec.VIPs, address.String()) {
		return
	}
	if err := k.config.Proof.Allows(address); err != nil {
		k.log.say("load balancer: %v", err)
		return
	}
	if c.balancer, err = net.Listen("tcp", net.JoinHostPort(address.String(), endpoint.Port())); err != nil {
		k.log.say("load balancer: %v", err)
		return
	}
	k.log.say("load balancer: listens at %s for %s", c.balancer.Addr(), endpoint.Host)
	go k.distribute(c, c.balancer)
}

func (k *kube) distribute(c *cluster, from net.Listener) {
	for turn := 0; ; turn++ {
		in, err := from.Accept()
		if err != nil {
			return
		}
		if through, source := k.healthy(c, turn); source != "" {
			go pass(through, in, source, c.backend)
		} else {
			in.Close() //nolint:errcheck // nobody is behind it
		}
	}
}

// healthy returns a control plane whose API server answers: how long, and where its requests come from.
func (k *kube) healthy(c *cluster, turn int) (through context.Context, source string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var doors []*door
	for _, address := range slices.Sorted(maps.Keys(c.doors)) {
		if k.machines[address].ControlPlane {
			doors = append(doors, c.doors[address])
		}
	}
	if len(doors) == 0 {
		return nil, ""
	}
	x := doors[turn%len(doors)]
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.through, x.source
}
