package datacenter

import (
	"context"
	"io"
	"net"
	"net/netip"
	"strconv"
	"sync"

	"github.com/ephemeral-castle/castle/internal/emulator/talos"
)

// open makes the API server answer at an address; the caller holds the mutex.
func (k *kube) open(address string) {
	c := k.cluster
	if c.doors[address] != nil {
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
	c.doors[address] = &door{listener: l, within: k.ctx, through: through, end: end}
	k.log.say("kubernetes: answers at %s", l.Addr())
	go c.doors[address].serve(c.backend)
}

// shut closes an address and its connections; the caller holds the mutex.
func (k *kube) shut(address string) {
	if door := k.cluster.doors[address]; door != nil {
		door.listener.Close() //nolint:errcheck // it was open
		door.end()
		delete(k.cluster.doors, address)
	}
}

// door passes connections at one address through to the API server.
type door struct {
	listener net.Listener
	within   context.Context // no connection outlives it

	mu      sync.Mutex
	through context.Context // of the connections since the last cut
	end     context.CancelFunc
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
		ctx := x.through
		x.mu.Unlock()
		go pass(ctx, in, backend)
	}
}

// pass connects in to the backend until one side ends it, or ctx does.
func pass(ctx context.Context, in net.Conn, backend string) {
	defer in.Close()
	out, err := net.Dial("tcp", backend)
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
