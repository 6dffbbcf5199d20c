package diagnose

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube/gates"
)

// hanging returns the target of an API that takes connections and never answers.
func hanging(t *testing.T) (target gate.Target, host string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() }) //nolint:errcheck // the test is over
	host = l.Addr().String()
	return gate.Target{Kubeconfig: fmt.Appendf(nil, `apiVersion: v1
kind: Config
current-context: blue
clusters: [{name: blue, cluster: {server: "https://%s"}}]
contexts: [{name: blue, context: {cluster: blue, user: admin}}]
users: [{name: admin, user: {token: a}}]
`, host)}, host
}

func TestAHangingAPIIsACauseAndCostsLittleTime(t *testing.T) {
	target, host := hanging(t)
	ctx, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer stop()
	begun := time.Now()
	d := run(ctx, target, "", "kubectl get pods", nil,
		func(context.Context, *diagnosis) { t.Error("explained") })
	if !strings.HasPrefix(d.Cause, host+" takes no connection or gives no answer: ") || d.Look != lookAtAPI {
		t.Errorf("got %q, %q", d.Cause, d.Look)
	}
	if took := time.Since(begun); took > 3*time.Second {
		t.Errorf("it took %s", took)
	}
}

// An API under load may answer a gate and, a moment later, not the diagnosis.
func TestTheLastAnswerOfAGateCountsWhereTheAPIAnswersTooLate(t *testing.T) {
	target, host := hanging(t)
	expired := &gate.Finding{Kind: gates.CAExpired, Object: "webhook configuration longhorn",
		Text: "its CA has expired"}
	for name, c := range map[string]struct {
		last               error
		cause, about, look string
	}{
		"a known kind": {expired, "webhook configuration longhorn: its CA has expired; its certificate " +
			"controller has not renewed it, or a clock is wrong", expired.Object, "kubectl get pods"},
		"another answer": {&gate.Finding{Text: "0 of 1 available"}, "", "", "kubectl get pods"},
		"no answer": {errors.New("connection refused"), host + " takes no connection or gives no answer: " +
			"no machine has the address, something drops the packets, or etcd has no quorum",
			"kubernetes API", lookAtAPI},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer stop()
			d := run(ctx, target, "", "kubectl get pods", c.last,
				func(context.Context, *diagnosis) { t.Error("explained") })
			if d.Cause != c.cause || d.About != c.about || d.Look != c.look {
				t.Errorf("got %+v", d)
			}
		})
	}
}

func TestAFileIsCutAtItsBeginning(t *testing.T) {
	e := newEvidence(nil)
	e.keep("long", append(make([]byte, fileRoom), "the end"...))
	got := string(e.files["long"])
	if !strings.HasPrefix(got, "… 7 bytes left out …") || !strings.HasSuffix(got, "the end") {
		t.Errorf("got %d bytes: %.40q", len(got), got)
	}
	e.room = 3
	e.keep("more", []byte("four"))
	if e.files["more"] != nil {
		t.Error("a file exceeds the room that is left")
	}
}
