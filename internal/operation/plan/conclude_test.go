package plan

import (
	"errors"
	"strings"
	"testing"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/run/review"
)

func TestConcludeNeverCallsReadyWhatItCouldNotSee(t *testing.T) {
	refused := errors.New("helm_release.a: ipaddresspool a/b: failed calling webhook")
	change := review.Change{Address: "a.b", Action: "update"}
	for _, c := range []struct {
		name    string
		stage   Stage
		empty   bool
		changes []review.Change
		unknown error
		state   string
		note    string
	}{
		{"nothing differs", Stage{unchanged: true}, true, nil, nil, review.UpToDate, ""},
		{"a gate is closed", Stage{unchanged: true, closed: true}, true, nil, nil, review.Unchanged, ""},
		{"the inputs changed", Stage{}, true, nil, nil, review.Unchanged, ""},
		{"not all could be seen", Stage{unchanged: true}, true, nil, refused, review.Unknown, ""},
		{"nor with other inputs", Stage{}, true, nil, refused, review.Unknown, ""},
		{"drift", Stage{unchanged: true}, false, []review.Change{change}, nil, review.Drifted, ""},
		{"drift of a release", Stage{unchanged: true}, true, []review.Change{change}, nil,
			review.Drifted, ""},
		{"drift of outputs", Stage{unchanged: true}, false, nil, nil, review.Drifted, ""},
		{"drift, and the rest unseen", Stage{unchanged: true}, false, []review.Change{change}, refused,
			review.Drifted, "unknown: helm_release.a"},
		{"changes", Stage{}, false, []review.Change{change}, nil, review.Changes, ""},
	} {
		s := c.stage
		s.config = &config.Stage{}
		s.conclude(c.empty, c.changes, c.unknown)
		if notes := strings.Join(s.Notes, "; "); s.State != c.state || !strings.HasPrefix(notes, c.note) {
			t.Errorf("%s: state %s with %q, want %s with %q", c.name, s.State, notes, c.state, c.note)
		}
		if s.State == review.Unknown && s.Reason != refused.Error() {
			t.Errorf("%s: no reason", c.name)
		}
	}
}

func TestAStageThatACreateRefusesIsNeverUpToDate(t *testing.T) {
	for state, want := range map[string]string{
		review.UpToDate: review.Refused, review.Unchanged: review.Refused, review.Drifted: review.Drifted,
		review.Failed: review.Failed,
	} {
		s := Stage{State: state, Refused: []string{"VM 421 is another machine"}}
		if s.refuse(); s.State != want {
			t.Errorf("%s becomes %s, want %s", state, s.State, want)
		}
		s = Stage{State: state}
		if s.refuse(); s.State != state {
			t.Errorf("%s without a refusal becomes %s", state, s.State)
		}
	}
}
