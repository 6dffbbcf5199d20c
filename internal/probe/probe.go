// Package probe checks addresses that no other client of castle knows: whether a port accepts connections and
// whether a URL responds. It sees the listener of an address and nothing behind it. Each attempt makes its
// own connection, without a proxy, which would answer for an address that does not exist. A redirect is a
// response and is not followed. Only a URL with the wrong scheme fails permanently.
package probe

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// attempt bounds one check: a slower server is not ready for its users either.
const attempt = 5 * time.Second

// GateTypes lists the gates that need nothing but an address.
func GateTypes() []gate.Type { return []gate.Type{tcp(), web()} }

// bind returns a gate whose check has its own deadline; the caller's context ends with its own cause. To
// diagnose, it checks once more; command looks further.
func bind(name string, check func(context.Context) error, command string) gate.Gate {
	bounded := func(ctx context.Context) error {
		limited, stop := context.WithTimeout(ctx, attempt)
		defer stop()
		err := check(limited)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return err
	}
	diagnose := func(ctx context.Context, _ error) gate.Diagnosis {
		d, err := gate.Diagnosis{Look: command}, bounded(ctx)
		if err == nil {
			d.Cause = "it was late: it answers now"
		} else if seen, is := errors.AsType[*fault](err); is {
			d.Cause = seen.cause
		}
		return d
	}
	return gate.Gate{Name: name, Check: bounded, Diagnose: diagnose}
}

// fault is the observed state instead of the wanted one.
type fault struct {
	seen  string
	cause string // the likely one, empty if there are too many
}

func (f *fault) Error() string { return f.seen }

// faultOf explains a request without a response, without the layers that repeat the address.
func faultOf(what string, err error) *fault {
	f := &fault{}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) {
		f.seen = fmt.Sprintf("no answer within %s", attempt)
		f.cause = "nothing has that address, something on the way drops the packets, or the server hangs"
	} else if name, is := errors.AsType[*net.DNSError](err); is && name.IsNotFound {
		f.seen = "the name " + name.Name + " does not resolve"
		f.cause = "the name is not in the DNS that this machine uses, or not yet"
	} else if number, is := errors.AsType[syscall.Errno](err); is {
		f.seen, f.cause = number.Error(), causes[number]
	} else if certificate, is := errors.AsType[*tls.CertificateVerificationError](err); is {
		f.seen = brief(certificate.Err)
	} else if request, is := errors.AsType[*url.Error](err); is {
		f.seen = brief(request.Err)
	} else {
		f.seen = brief(err)
	}
	f.seen = what + ": " + f.seen
	return f
}

var causes = map[syscall.Errno]string{
	syscall.ECONNREFUSED: "a machine has the address, but nothing listens on that port",
	syscall.EHOSTUNREACH: "no machine has the address: it is off, or nobody announces the address yet",
	syscall.ENETUNREACH:  "this machine has no route to that network",
}

// longest is how much of a foreign message is repeated.
const longest = 240

// brief makes one short line of a foreign message.
func brief(err error) string {
	text := strings.Join(strings.Fields(strings.TrimPrefix(err.Error(), "x509: ")), " ")
	if runes := []rune(text); len(runes) > longest {
		return string(runes[:longest]) + "…"
	}
	return text
}

// tcp checks that a port accepts connections and keeps them.
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
			check := func(ctx context.Context) error { return Kept(ctx, address) }
			return bind(name, check, "nc -vz "+host+" "+port), nil
		},
	}
}

// settling is how long a connection has to last. A proxy in front of nothing accepts connections too, and
// closes them as soon as it finds no backend.
const settling = 200 * time.Millisecond

// Kept checks that an address ("host:port") accepts connections and keeps them.
func Kept(ctx context.Context, address string) error {
	ctx, stop := context.WithTimeout(ctx, attempt)
	defer stop()
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

// PostgreSQL logs in to a database and returns the role as which the session acts. answered reports that a
// server has answered, also one that refuses the login.
func PostgreSQL(ctx context.Context, connection string) (role string, answered bool, err error) {
	ctx, stop := context.WithTimeout(ctx, attempt)
	defer stop()
	c, err := pgconn.Connect(ctx, connection)
	if err != nil {
		return "", errors.As(err, new(*pgconn.PgError)), err
	}
	result := c.ExecParams(ctx, "SELECT current_user", nil, nil, nil, nil).Read()
	if len(result.Rows) == 1 {
		role = string(result.Rows[0][0])
	}
	return role, true, errors.Join(result.Err, c.Close(ctx))
}
