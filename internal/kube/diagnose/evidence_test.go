package diagnose

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/ephemeral-castle/castle/internal/gate"
)

func TestAHangingAPIIsACauseAndCostsLittleTime(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() }) //nolint:errcheck // the test is over
	host := l.Addr().String()
	target := gate.Target{Kubeconfig: fmt.Appendf(nil, `apiVersion: v1
kind: Config
current-context: blue
clusters: [{name: blue, cluster: {server: "https://%s"}}]
contexts: [{name: blue, context: {cluster: blue, user: admin}}]
users: [{name: admin, user: {token: a}}]
`, host)}
	ctx, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer stop()
	begun := time.Now()
	d := run(ctx, target, "", "kubectl get pods",
		func(context.Context, *diagnosis) { t.Error("explained") })
	if !strings.HasPrefix(d.Cause, host+" takes no connection or gives no answer: ") || d.Look != lookAtAPI {
		t.Errorf("got %q, %q", d.Cause, d.Look)
	}
	if took := time.Since(begun); took > 3*time.Second {
		t.Errorf("it took %s", took)
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
