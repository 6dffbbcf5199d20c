package gate

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

func TestKindOfSeesThroughWhatWrapsAFinding(t *testing.T) {
	found := &Finding{Kind: NotFound, Object: "service a/b", Text: "does not exist yet"}
	for name, err := range map[string]error{
		"itself":    found,
		"permanent": Permanent(found),
		"wrapped":   fmt.Errorf("gate x: %w", found),
		"timed out": &TimeoutError{Gate: "x", Timeout: time.Second, Last: found},
		"joined":    errors.Join(errors.New("other"), found),
	} {
		if KindOf(err) != NotFound {
			t.Errorf("%s: got %q", name, KindOf(err))
		}
	}
	if KindOf(errors.New("plain")) != "" || KindOf(nil) != "" {
		t.Error("an error without a finding has a kind")
	}
}

func TestFindingTextNamesItsObject(t *testing.T) {
	cause := errors.New("connection refused")
	for want, f := range map[string]*Finding{
		"service a/b: does not exist yet": {Object: "service a/b", Text: "does not exist yet"},
		"etcd is down":                    {Text: "etcd is down"},
		"connection refused":              {Err: cause},
	} {
		if f.Error() != want {
			t.Errorf("got %q, want %q", f.Error(), want)
		}
	}
	if !errors.Is(&Finding{Text: "x", Err: cause}, cause) {
		t.Error("a finding hides its cause")
	}
}

// TestWhatACreatePassesThroughIsNoCause keeps the live view at an expired CA, while what waits for the
// webhook does not exist yet.
func TestWhatACreatePassesThroughIsNoCause(t *testing.T) {
	for _, kind := range []Kind{"", NotFound, Waits, NoObjects, NotEstablished, NeverReported,
		DriverMissing} {
		if kind.IsCause() {
			t.Errorf("%q counts as a cause", kind)
		}
	}
	if kind := Kind("ca-expired"); !kind.IsCause() {
		t.Errorf("%q does not count as a cause", kind)
	}
}
