package probe

import (
	"net"
	"strings"
	"testing"

	"github.com/zclconf/go-cty/cty"
)

func TestAPortThatKeepsConnectionsIsOpen(t *testing.T) {
	for name, serve := range map[string]func(net.Conn){
		"and says nothing":   silent(t),
		"and speaks first":   func(c net.Conn) { c.Write([]byte("SSH-2.0-x\r\n")); silent(t)(c) },
		"and, having spoken": func(c net.Conn) { c.Write([]byte("+OK\r\n")); c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			if err := gateOf(t, "tcp", texts("address", listen(t, serve))).Check(t.Context()); err != nil {
				t.Errorf("got %v, want open", err)
			}
		})
	}
}

func TestAPortThatOnlyLooksReadyIsClosed(t *testing.T) {
	hangsUp := listen(t, func(c net.Conn) { c.Close() })
	nobody := free(t)
	for address, words := range map[string]string{
		nobody:  nobody + ": connection refused",
		hangsUp: hangsUp + ": takes connections and ends them at once",
	} {
		wantClosed(t, gateOf(t, "tcp", texts("address", address)).Check(t.Context()), false, words)
	}
}

func TestDiagnoseNamesTheCauseOfAPort(t *testing.T) {
	for name, c := range map[string]struct{ address, cause string }{
		"nobody": {free(t), "a machine has the address, but nothing listens on that port"},
		"a hang-up": {listen(t, func(c net.Conn) { c.Close() }),
			"a proxy or load balancer stands there with nothing behind it"},
		"open now": {listen(t, silent(t)), "it was late: it answers now"},
	} {
		d := gateOf(t, "tcp", texts("address", c.address)).Diagnose(t.Context(), nil)
		if look := "nc -vz " + strings.Replace(c.address, ":", " ", 1); d.Cause != c.cause || d.Look != look {
			t.Errorf("%s: got %q and %q", name, d.Cause, d.Look)
		}
	}
}

func TestAddressesAreValidated(t *testing.T) {
	for address, good := range map[string]bool{
		"10.0.0.5:22": true, "[fd00::5]:22": true, "blue.example.org:443": true,
		"10.0.0.5": false, "10.0.0.5:": false, ":22": false, "10.0.0.5:0": false, "10.0.0.5:65536": false,
		"10.0.0.5:ssh": false,
		"fd00::5:22":   false, "http://10.0.0.5:80": false, "a b:22": false, "": false,
	} {
		if err := typed(t, "tcp").Attributes["address"].Valid(cty.StringVal(address)); (err == nil) != good {
			t.Errorf("%q: %v", address, err)
		}
	}
}
