package gates

import (
	"testing"
	"time"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// A kubelet that restarts with another image is waited for. One that stays ready with its old one for two
// minutes was never told to restart.
func TestKubernetesVersionWaitsForRestarts(t *testing.T) {
	g := &versionGate{version: "1.36.4", runs: map[string]string{"kubelet blue-w-01": "1.36.3"}}
	began := time.Now()
	at := func(after time.Duration, ready ...string) bool {
		g.ready = ready
		return gate.IsPermanent(g.compare(began.Add(after)))
	}
	for _, tt := range []struct {
		after     time.Duration
		ready     []string
		permanent bool
	}{
		{0, []string{"blue-w-01", "blue-w-02"}, false},
		{time.Minute, []string{"blue-w-01", "blue-w-02"}, false},
		{90 * time.Second, []string{"blue-w-01"}, false}, // blue-w-02 restarts
		{3 * time.Minute, []string{"blue-w-01"}, false},
		{4 * time.Minute, []string{"blue-w-01"}, true},
		{5 * time.Minute, nil, false}, // it restarts after all
		{15 * time.Minute, nil, false},
	} {
		if got := at(tt.after, tt.ready...); got != tt.permanent {
			t.Errorf("after %s with %v ready: permanent is %v", tt.after, tt.ready, got)
		}
	}
	g.runs["kubelet blue-w-01"] = "1.36.4"
	if err := g.compare(began.Add(time.Hour)); err != nil {
		t.Error(err)
	}
}
