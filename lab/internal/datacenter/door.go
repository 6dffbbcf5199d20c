package datacenter

import (
	"context"
	"io"
	"net"
	"net/netip"
	"strconv"

	"github.com/ephemeral-castle/castle/internal/emulator/talos"
)

// open lets an address answer for the API server; the caller holds the mutex.
func (d *Datacenter) open(address string) {
	c := d.cluster
	if c.doors[address] != nil {
		return
	}
	a, err := netip.ParseAddr(address)
	if err == nil {
		err = d.config.Proof.Allows(a)
	}
	var l net.Listener
	if err == nil {
		l, err = net.Listen("tcp", net.JoinHostPort(address, strconv.Itoa(port(c.spec))))
	}
	if err != nil {
		d.say("kubernetes: %v", err)
		return
	}
	c.doors[address] = l
	d.say("kubernetes: answers at %s", l.Addr())
	go serveDoor(d.ctx, l, c.backend)
}

// shut closes an address and what is connected through it; the caller holds the mutex.
func (d *Datacenter) shut(address string) {
	if l := d.cluster.doors[address]; l != nil {
		l.Close() //nolint:errcheck // it was open
		delete(d.cluster.doors, address)
	}
}

// serveDoor passes connections through until the door is shut, and then cuts them.
func serveDoor(ctx context.Context, l net.Listener, backend string) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for {
		in, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
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
		}()
	}
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
