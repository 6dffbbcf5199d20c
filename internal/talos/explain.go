package talos

import (
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// problem is why a machine gave no answer, in words that follow its address.
type problem struct {
	what      string
	permanent bool
}

// explain puts a failed call into words and tells what waiting cannot heal.
func (g *etcdGate) explain(err error) *problem {
	said := status.Convert(err).Message()
	has := func(text string) bool { return strings.Contains(said, text) }
	switch status.Code(err) {
	case codes.OK:
		return &problem{what: "empty answer"}
	case codes.PermissionDenied:
		// The machine's certificate was the cluster's, so this is no maintenance mode.
		return &problem{what: "the talosconfig's role may not ask about etcd (os:reader may)", permanent: true}
	case codes.Unimplemented:
		if has("only available on control plane nodes") {
			return &problem{what: "is a worker: endpoints must name control planes only", permanent: true}
		}
	case codes.DeadlineExceeded:
		return &problem{what: fmt.Sprintf("no answer within %s", g.timeout)}
	}
	switch {
	case has(":2379"), has("admin.crt: no such file"):
		return &problem{what: "etcd does not run yet"}
	case has("certificate signed by unknown authority"):
		return &problem{what: "shows no certificate of this cluster (it waits for its configuration, or is another cluster's)"}
	case has("remote error: tls: "):
		_, alert, _ := strings.Cut(said, "remote error: tls: ")
		return &problem{what: fmt.Sprintf("refuses the talosconfig's certificate (%s)", strings.TrimRight(alert, `"`))}
	case has("x509: "):
		_, fault, _ := strings.Cut(said, "x509: ")
		return &problem{what: strings.TrimRight(fault, `"`)}
	}
	for _, plain := range []string{
		"connection refused", "no route to host", "network is unreachable", "connection reset by peer", "i/o timeout", "no such host",
	} {
		if has(plain) {
			return &problem{what: plain}
		}
	}
	return &problem{what: said}
}
