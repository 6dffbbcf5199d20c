package front

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/ephemeral-castle/castle/lab/internal/namespace"
	"github.com/ephemeral-castle/castle/lab/internal/network"
)

// Front serves every endpoint that a configuration names.
type Front struct {
	Authority *Authority
	Proof     namespace.Proof
	// Address is where host names resolve to, and Port where it always listens; 0 is 443.
	Address netip.Addr
	Port    uint16
	// Handler returns the handler of a host. It does not know the role of the host: the request
	// decides.
	Handler func(host string) http.Handler
	// SSH serves the endpoints that speak it; nil if none does.
	SSH func(net.Listener)
}

// Serve listens at the endpoints and at the front's own address, and serves
// until ctx ends.
func (f *Front) Serve(ctx context.Context, endpoints []network.Endpoint) error {
	places, shells := map[netip.AddrPort]bool{netip.AddrPortFrom(f.Address, cmp.Or(f.Port, 443)): true},
		map[netip.AddrPort]bool{}
	for _, e := range endpoints {
		at := f.Address
		if a, err := netip.ParseAddr(e.Host); err == nil {
			at = a
		}
		place := netip.AddrPortFrom(at, e.Port)
		if e.SSH {
			shells[place] = true
			continue
		}
		places[place] = places[place] || e.TLS
	}
	for place := range shells {
		l, err := f.listen(place, false)
		if err != nil {
			return err
		}
		go f.SSH(l)
		context.AfterFunc(ctx, func() { l.Close() }) //nolint:errcheck // nobody is left to be told
	}
	var listeners []net.Listener
	for place, secure := range places {
		l, err := f.listen(place, secure)
		if err != nil {
			for _, open := range listeners {
				err = errors.Join(err, open.Close())
			}
			return err
		}
		listeners = append(listeners, l)
	}
	s := &http.Server{
		Handler:           http.HandlerFunc(f.serve),
		ReadHeaderTimeout: time.Minute,
		// A Proxmox node speaks no HTTP/2, and its reason phrases need HTTP/1.1.
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
		// Clients that close the connection during a handshake are not worth a log line.
		ErrorLog: log.New(io.Discard, "", 0),
	}
	for _, l := range listeners {
		go s.Serve(l) //nolint:errcheck // it ends with the server
	}
	context.AfterFunc(ctx, func() { s.Close() }) //nolint:errcheck // nobody is left to be told
	return nil
}

func (f *Front) listen(place netip.AddrPort, secure bool) (net.Listener, error) {
	if err := f.Proof.Allows(place.Addr()); err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", place.String())
	if err == nil && secure {
		l = tls.NewListener(l, f.Authority.TLS())
	}
	return l, err
}

func (f *Front) serve(w http.ResponseWriter, r *http.Request) {
	host := r.Host
	if h, _, err := net.SplitHostPort(r.Host); err == nil {
		host = h
	}
	h := f.Handler(strings.ToLower(host))
	if h == nil {
		http.Error(w, fmt.Sprintf("the lab has nothing at %s%s", r.Host, r.URL.Path), http.StatusNotFound)
		return
	}
	h.ServeHTTP(w, r)
}
