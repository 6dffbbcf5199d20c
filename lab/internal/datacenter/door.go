package datacenter

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"sync"

	"github.com/ephemeral-castle/castle/internal/emulator/talos"
	"github.com/ephemeral-castle/castle/lab/internal/kubernetes"
)

// open makes the API server of a machine answer at an address, its own or a virtual one; the caller holds the
// mutex.
func (k *kube) open(address, machine string) {
	c := k.cluster
	if c.starting[address] != nil {
		return
	}
	k.tellReleases()
	if x := c.doors[address]; x != nil {
		x.lead(k.source(machine))
		return
	}
	a, err := netip.ParseAddr(address)
	if err == nil {
		err = k.config.Proof.Allows(a)
	}
	var l net.Listener
	if err == nil {
		l, err = net.Listen("tcp", net.JoinHostPort(address, strconv.Itoa(port(c.spec))))
	}
	if err != nil {
		k.log.say("kubernetes: %v", err)
		return
	}
	through, end := context.WithCancel(k.ctx)
	x := &door{listener: l, within: k.ctx, source: k.source(machine), through: through, end: end}
	c.doors[address] = x
	k.log.say("kubernetes: answers at %s", l.Addr())
	go x.serve(c.backend)
	for _, vip := range c.spec.VIPs {
		k.follow(vip)
	}
}

// shut closes an address and its connections, and the virtual addresses that the machine there holds; the
// caller holds the mutex.
func (k *kube) shut(address string) {
	if door := k.cluster.doors[address]; door != nil {
		door.listener.Close() //nolint:errcheck // it was open
		door.end()
		delete(k.cluster.doors, address)
	}
	for vip, holder := range k.holders {
		if holder == address {
			k.shut(vip)
		}
	}
}

// source is the loopback address from which requests to a machine's API server reach the one that there is.
// The caller holds the mutex.
func (k *kube) source(machine string) string {
	if k.sources[machine] == "" {
		k.sources[machine] = fmt.Sprintf("127.9.0.%d", len(k.sources)+1)
	}
	return k.sources[machine]
}

// tellReleases has /version answer with the release of the machine's API server; the caller holds the mutex.
func (k *kube) tellReleases() {
	all := map[string]string{}
	for address, m := range k.machines {
		if m.ControlPlane {
			all[k.source(address)] = m.APIServerVersion
		}
	}
	if err := kubernetes.ReplaceReleases(k.cluster.dir, all); err != nil {
		k.log.say("kubernetes: releases: %v", err)
	}
}

// door passes connections at one address through to the API server.
type door struct {
	listener net.Listener
	within   context.Context // no connection outlives it

	mu      sync.Mutex
	source  string          // of new connections
	through context.Context // of the connections since the last cut
	end     context.CancelFunc
}

// lead has new connections come from a source.
func (x *door) lead(source string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.source = source
}

// cut ends all connections; the door stays open for new ones.
func (x *door) cut() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.end()
	x.through, x.end = context.WithCancel(x.within)
}

func (x *door) serve(backend string) {
	for {
		in, err := x.listener.Accept()
		if err != nil {
			return
		}
		x.mu.Lock()
		ctx, source := x.through, x.source
		x.mu.Unlock()
		go pass(ctx, in, source, backend)
	}
}

// pass connects in to the backend, from a source, until one side ends it, or ctx does.
func pass(ctx context.Context, in net.Conn, source, backend string) {
	defer in.Close()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(source)}}
	out, err := dialer.DialContext(ctx, "tcp", backend)
	if err != nil {
		return
	}
	defer out.Close()
	stop := context.AfterFunc(ctx, func() { in.Close(); out.Close() })
	defer stop()
	go func() {
		io.Copy(out, in)                //nolint:errcheck // the other side sees the end
		out.(*net.TCPConn).CloseWrite() //nolint:errcheck // likewise
	}()
	io.Copy(in, out) //nolint:errcheck // likewise
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

func port(s talos.ClusterSpec) int {
	if s.APIPort == 0 {
		return 6443
	}
	return s.APIPort
}
