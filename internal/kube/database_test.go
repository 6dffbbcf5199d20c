package kube

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// TestANewPasswordTakesTheVerifierWithIt covers the Secret of a database user, whose other fields are PGO's.
func TestANewPasswordTakesTheVerifierWithIt(t *testing.T) {
	const at = "/api/v1/namespaces/data/secrets/db-pguser-admin"
	for _, test := range []struct {
		name, has, password, want string
		verified                  bool
	}{
		{"another password", "{password: b2xk, verifier: djE=, host: aA==}", "new",
			"map[host:aA== password:bmV3]", false},
		{"the same password", "{password: bmV3, verifier: djE=}", "new", "map[password:bmV3 verifier:djE=]",
			true},
		{"the same, before PGO has seen it", "{password: bmV3}", "new", "map[password:bmV3]", false},
		{"only looked at", "{password: b2xk, verifier: djE=}", "", "map[password:b2xk verifier:djE=]", true},
	} {
		f := newFakeAPI(t)
		f.add(t, at, "kind: Secret\nmetadata: {name: db-pguser-admin, namespace: data, "+
			"resourceVersion: '7'}\ndata: "+test.has)
		verified, err := SetDatabasePassword(t.Context(), gate.Target{Kubeconfig: f.kubeconfig()}, "data",
			"db-pguser-admin", test.password)
		got := fmt.Sprint(f.objects[at]["data"])
		if err != nil || verified != test.verified || got != test.want {
			t.Errorf("%s: verified %t, %s, %v", test.name, verified, got, err)
		}
		patched := slices.ContainsFunc(f.asked, func(r string) bool { return strings.HasPrefix(r, "PATCH ") })
		if patched != (test.name == "another password") {
			t.Errorf("%s: %q", test.name, f.asked)
		}
	}
}
