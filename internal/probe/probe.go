// Package probe checks addresses that no other client of castle knows: it tests whether a port accepts
// connections and whether a URL responds.
//
// It sees the listener of an address and nothing behind it, so its gates trust little. Each attempt makes
// its own connection and has its own timeout. A proxy of the environment is never used: it would answer for
// an address that does not exist. A redirect is a response and is not followed, since its target may be
// ready when the page itself is not.
//
// Nearly every failure may heal: a name that does not resolve, a foreign certificate, any status. An ingress
// controller serves its own certificate until the right one is issued. Only a URL with the wrong scheme
// fails permanently.
package probe

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// attempt bounds one check: a slower server is not ready for its users either.
const attempt = 5 * time.Second

// GateTypes lists the gates that need nothing but an address.
func GateTypes() []gate.Type { return []gate.Type{tcp(), web()} }

// bound gives a check its own deadline; the caller's context ends with its own cause.
func bound(check func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		limited, stop := context.WithTimeout(ctx, attempt)
		defer stop()
		err := check(limited)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return err
	}
}

// diagnose checks once more and returns the likely cause; command looks further.
func diagnose(check func(context.Context) error, command string) func(context.Context) gate.Diagnosis {
	return func(ctx context.Context) gate.Diagnosis {
		d := gate.Diagnosis{Look: command}
		err := check(ctx)
		seen := &fault{}
		switch {
		case err == nil:
			d.Cause = "it was late: it answers now"
		case errors.As(err, &seen):
			d.Cause = seen.cause
		}
		return d
	}
}

// fault is the observed state instead of the wanted one.
type fault struct {
	seen  string
	cause string // the likely one, empty if there are too many
}

func (f *fault) Error() string { return f.seen }

// faultOf explains a request without a response, without the layers that repeat the address.
func faultOf(what string, err error) *fault {
	var (
		name        *net.DNSError
		number      syscall.Errno
		certificate *tls.CertificateVerificationError
		request     *url.Error
	)
	f := &fault{}
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		f.seen = fmt.Sprintf("no answer within %s", attempt)
		f.cause = "nothing has that address, something on the way drops the packets, or the server hangs"
	case errors.As(err, &name) && name.IsNotFound:
		f.seen = "the name " + name.Name + " does not resolve"
		f.cause = "the name is not in the DNS that this machine uses, or not yet"
	case errors.As(err, &number):
		f.seen, f.cause = number.Error(), causes[number]
	case errors.As(err, &certificate):
		f.seen = brief(certificate.Err)
	case errors.As(err, &request):
		f.seen = brief(request.Err)
	default:
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
