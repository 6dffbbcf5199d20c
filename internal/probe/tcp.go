package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// tcp checks that a port accepts connections and keeps them:
//
//	gate "tcp" "ssh" { address = "10.0.0.5:22" }
func tcp() gate.Type {
	return gate.Type{
		Name:    "tcp",
		Summary: "a port accepts connections and keeps them",
		Attributes: map[string]gate.Attribute{
			"address": {Type: cty.String, Required: true, Valid: validAddress,
				Help: `The address: "host:port".`},
		},
		New: func(name string, _ gate.Target, v gate.Values) (gate.Gate, error) {
			address := v.String("address")
			host, port, err := net.SplitHostPort(address)
			if err != nil {
				return gate.Gate{}, err
			}
			check := bound(func(ctx context.Context) error { return kept(ctx, address) })
			return gate.Gate{Name: name, Check: check, Diagnose: diagnose(check, "nc -vz "+host+" "+port)},
				nil
		},
	}
}

// settling is how long a connection has to last. A proxy in front of nothing accepts connections too, and
// closes them as soon as it finds no backend.
const settling = 200 * time.Millisecond

func kept(ctx context.Context, address string) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return faultOf(address, err)
	}
	defer conn.Close() //nolint:errcheck // nothing was written
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if err := conn.SetReadDeadline(time.Now().Add(settling)); err != nil {
		return faultOf(address, err)
	}
	_, err = conn.Read(make([]byte, 1))
	switch {
	case err == nil, errors.Is(err, os.ErrDeadlineExceeded): // the server has spoken, or waits for the client
		return nil
	case ctx.Err() != nil:
		return faultOf(address, ctx.Err())
	}
	return &fault{
		seen:  address + ": takes connections and ends them at once",
		cause: "a proxy or load balancer stands there with nothing behind it",
	}
}

func validAddress(x cty.Value) error {
	host, port, err := net.SplitHostPort(x.AsString())
	if err != nil || !plainHost(host) {
		return fmt.Errorf(`%q is not an address such as "10.0.0.5:22"`, x.AsString())
	}
	return validPort(port)
}

// plainHost accepts a name or an IP address, one of IPv6 without its brackets.
func plainHost(host string) bool {
	if strings.Contains(host, ":") {
		return net.ParseIP(host) != nil
	}
	return host != "" && !strings.ContainsAny(host, "/@ []'")
}

func validPort(port string) error {
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("%q is not a port number", port)
	}
	return nil
}
