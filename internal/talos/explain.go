package talos

import (
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// problem is why a machine gave no answer, in words that follow its address.
type problem struct {
	endpoint  string
	what      string
	permanent bool
}

// noCertificate begins what is said of a machine that another authority vouches for.
const noCertificate = "shows no certificate of this cluster"

// etcdDown is a control plane that answers and runs no etcd.
const etcdDown = "etcd does not run yet"

// explain puts a failed call into words and tells what waiting cannot heal.
// asked is what the call was about: "about etcd".
func (m *machines) explain(endpoint string, err error, asked string) *problem {
	p := &problem{endpoint: endpoint}
	p.what, p.permanent = m.words(err, asked)
	return p
}

func (m *machines) words(err error, asked string) (what string, permanent bool) {
	said := status.Convert(err).Message()
	has := func(text string) bool { return strings.Contains(said, text) }
	switch status.Code(err) {
	case codes.OK:
		return "empty answer", false
	case codes.PermissionDenied:
		// The machine's certificate was the cluster's, so this is no maintenance mode.
		return "the talosconfig's role may not ask " + asked + " (os:reader may)", true
	case codes.Unimplemented:
		if has("only available on control plane nodes") {
			return "is a worker: endpoints must name control planes only", true
		}
	case codes.DeadlineExceeded:
		return fmt.Sprintf("no answer within %s", m.timeout), false
	}
	switch {
	case has(":2379"), has("admin.crt: no such file"):
		return etcdDown, false
	case has("certificate signed by unknown authority"):
		return noCertificate + " (it waits for its configuration, or is another cluster's)", false
	case has("remote error: tls: "):
		_, alert, _ := strings.Cut(said, "remote error: tls: ")
		return fmt.Sprintf("refuses the talosconfig's certificate (%s)", strings.TrimRight(alert, `"`)), false
	case has("x509: "):
		_, fault, _ := strings.Cut(said, "x509: ")
		return strings.TrimRight(fault, `"`), false
	}
	for _, plain := range []string{
		"connection refused", "no route to host", "network is unreachable", "connection reset by peer", "i/o timeout", "no such host",
	} {
		if has(plain) {
			return plain, false
		}
	}
	return said, false
}
