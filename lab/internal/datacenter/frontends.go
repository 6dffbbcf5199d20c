package datacenter

import (
	"context"
	"io"
	"net"
	"net/netip"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ephemeral-castle/castle/lab/internal/controlplane"
	"github.com/ephemeral-castle/castle/lab/internal/operators/hcloud/ccm"
)

// balance has the load balancers of Services listen at their addresses. No container is behind them: whoever
// sends something gets no answer.
func (x *cloud) balance(ctx context.Context) {
	open := map[string]io.Closer{}
	for tick := time.NewTicker(500 * time.Millisecond); ctx.Err() == nil; {
		wanted := x.server.Frontends(ccm.ServiceUID)
		if len(wanted) > 0 {
			x.readPorts(ctx)
		}
		for at, l := range open {
			if _, is := wanted[at]; !is {
				l.Close() //nolint:errcheck // it was open
				delete(open, at)
			}
		}
		for at := range wanted {
			if _, known := open[at]; !known {
				open[at] = x.listen(at)
			}
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// listen takes connections at an address, and ends them at once while no target is healthy.
func (x *cloud) listen(at string) io.Closer {
	var l net.Listener
	err := x.d.config.Proof.Allows(netip.MustParseAddrPort(at).Addr())
	if err == nil {
		l, err = net.Listen("tcp", at)
	}
	if err != nil {
		x.d.log.say("load balancer: %v", err)
		return io.NopCloser(nil)
	}
	x.d.log.say("load balancer: listens at %s for a Service", at)
	go func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			go func() {
				if x.server.Frontends(ccm.ServiceUID)[at] {
					c.Read(make([]byte, 1)) //nolint:errcheck // it ends in either case
				}
				c.Close() //nolint:errcheck // nothing was written
			}()
		}
	}()
	return l
}

// listens reports whether a server takes connections at a port. On those of Services, from 30000 on,
// kube-proxy does while an endpoint is ready, on whatever node.
func (x *cloud) listens(_ int64, port int) bool {
	ports := x.ports.Load()
	return port < 30000 || ports != nil && (*ports)[port]
}

// readPorts keeps what it has read last while the API does not answer, as kube-proxy does.
func (x *cloud) readPorts(ctx context.Context) {
	var p *controlplane.Process
	x.d.clouds.mu.Lock()
	if c := x.d.clouds.cluster; c != nil {
		p = c.process
	}
	if x.d.clouds.mu.Unlock(); p == nil {
		return
	}
	cached := metav1.ListOptions{ResourceVersion: "0"}
	services, failed := p.Client.CoreV1().Services("").List(ctx, cached)
	slices, err := p.Client.DiscoveryV1().EndpointSlices("").List(ctx, cached)
	if failed != nil || err != nil {
		return
	}
	ready, ports := map[string]bool{}, map[int]bool{}
	for _, slice := range slices.Items {
		for _, e := range slice.Endpoints {
			if e.Conditions.Ready == nil || *e.Conditions.Ready {
				ready[slice.Namespace+"/"+slice.Labels[discoveryv1.LabelServiceName]] = true
			}
		}
	}
	for _, s := range services.Items {
		for _, p := range s.Spec.Ports {
			ports[int(p.NodePort)] = ready[s.Namespace+"/"+s.Name]
		}
	}
	x.ports.Store(&ports)
}
