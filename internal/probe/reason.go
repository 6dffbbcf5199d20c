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
)

// fault is what a look saw instead of what it wanted.
type fault struct {
	seen  string
	cause string // the likely one, empty if there are too many
}

func (f *fault) Error() string { return f.seen }

// faultOf says why a look at something brought no answer, without the layers that
// repeat what was asked.
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
		f.cause = "nothing has that address, something on the way drops what is sent to it, or what listens there hangs"
	case errors.As(err, &name) && name.IsNotFound:
		f.seen = "the name " + name.Name + " does not resolve"
		f.cause = "the name is not in the DNS that this machine asks, or not yet"
	case errors.As(err, &number):
		f.seen = number.Error()
		f.cause = causes()[number]
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

func causes() map[syscall.Errno]string {
	return map[syscall.Errno]string{
		syscall.ECONNREFUSED: "a machine has the address, but nothing listens on that port",
		syscall.EHOSTUNREACH: "no machine has the address: it is off, or nobody announces the address yet",
		syscall.ENETUNREACH:  "this machine has no route to that network",
	}
}

// longest is how much of another's message is repeated.
const longest = 240

// brief makes one short line of another's message.
func brief(err error) string {
	text := strings.Join(strings.Fields(strings.TrimPrefix(err.Error(), "x509: ")), " ")
	if runes := []rune(text); len(runes) > longest {
		return string(runes[:longest]) + "…"
	}
	return text
}
