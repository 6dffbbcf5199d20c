package httpjson

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// repeatTime bounds a request with all its repetitions.
const repeatTime = time.Minute

func pauses() wait.Backoff {
	return wait.Backoff{Duration: 250 * time.Millisecond, Factor: 2, Jitter: 0.1, Steps: 5}
}

// Repeat sends a request that changes nothing. If it fails for a reason that may pass, Repeat sends it
// again, up to five times within a minute and with growing pauses.
//
// A pause takes at most a quarter of the time that ctx has left. So a caller with little time, such as castle
// doctor, gets the reason of the failure and not a timeout.
func Repeat(ctx context.Context, send func(context.Context) error) error {
	limited, stop := context.WithTimeout(ctx, repeatTime)
	defer stop()
	deadline, _ := limited.Deadline()
	began, backoff := time.Now(), pauses()
	var last error
	for tries := 1; ; tries++ {
		err := send(limited)
		if err == nil || ctx.Err() != nil {
			return err
		}
		if last == nil || limited.Err() == nil { // not that of a request which the minute has cut
			last = err
		}
		pause := backoff.Step()
		if tries > pauses().Steps || !passes(last) || time.Until(deadline) < 4*pause {
			if tries > 1 {
				last = fmt.Errorf("%w; tried %d times in %s", last, tries,
					time.Since(began).Round(time.Second))
			}
			return last
		}
		select {
		case <-limited.Done():
		case <-time.After(pause):
		}
	}
}

// passes reports whether the same request may succeed a moment later: the connection failed, the server
// failed, or something else answered in its place. An answer that did not come in time is not waited for
// again.
func passes(err error) bool {
	if known, ok := errors.AsType[interface {
		error
		Passes() bool
	}](err); ok {
		return known.Passes()
	}
	name, isName := errors.AsType[*net.DNSError](err)
	network, isNetwork := errors.AsType[net.Error](err)
	switch {
	case isName && name.IsNotFound, isNetwork && network.Timeout(), errors.Is(err, os.ErrDeadlineExceeded),
		errors.As(err, new(*tls.CertificateVerificationError)), errors.As(err, new(tls.RecordHeaderError)),
		errors.As(err, new(x509.UnknownAuthorityError)), errors.As(err, new(x509.HostnameError)),
		errors.Is(err, http.ErrSchemeMismatch):
		return false
	}
	return true
}
