package talos

import (
	"strings"
	"testing"
)

func TestATalosconfigThatOpensABrowserIsRefused(t *testing.T) {
	const omni = "context: a\ncontexts:\n  a: {endpoints: [10.0.0.1], ca: YQ==}\n" +
		"  b: {endpoints: [10.0.0.1], auth: {siderov1: {identity: me@example.org}}}\n"
	_, err := newMachines([]byte(omni), nil)
	if err == nil || !strings.Contains(err.Error(), `the context "b" signs in with a browser`) {
		t.Errorf("got %v", err)
	}
	for _, text := range []string{strings.Split(omni, "  b:")[0], "no talosconfig", "contexts: {a: null}"} {
		if err := Inline([]byte(text)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}
