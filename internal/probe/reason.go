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

// longest is how much of another's message is repeated.
const longest = 240

// reason says why a look brought no answer, without the layers that repeat what
// was asked.
func reason(err error) string {
	var (
		number      syscall.Errno
		name        *net.DNSError
		certificate *tls.CertificateVerificationError
		request     *url.Error
	)
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Sprintf("no answer within %s", attempt)
	case errors.As(err, &number):
		return number.Error()
	case errors.As(err, &name) && name.IsNotFound:
		return "the name " + name.Name + " does not resolve"
	case errors.As(err, &certificate):
		err = certificate.Err
	case errors.As(err, &request):
		err = request.Err
	}
	text := strings.Join(strings.Fields(strings.TrimPrefix(err.Error(), "x509: ")), " ")
	if runes := []rune(text); len(runes) > longest {
		return string(runes[:longest]) + "…"
	}
	return text
}
