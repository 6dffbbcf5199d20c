package vault

import (
	"strings"
	"testing"

	"github.com/zclconf/go-cty/cty"

	emulator "github.com/ephemeral-castle/castle/internal/emulator/vault"
	"github.com/ephemeral-castle/castle/internal/gate"
)

const landing = `
path "sys/auth/jwt-*" { capabilities = ["create", "update", "delete", "sudo"] }
path "sys/auth" { capabilities = ["read"] }
path "auth/jwt-*" { capabilities = ["create", "read", "update", "delete"] }
path "sys/policies/acl/castle-*" { capabilities = ["create", "read", "update", "delete"] }
`

// site returns the arguments of a stage like secrets/vault-jwt in a world.
func site(w *world) gate.Values {
	return gate.Values{
		"address": cty.StringVal(w.place.Server.Address), "ca_file": cty.StringVal(w.place.Server.CAFile),
		"kind": cty.StringVal("auth"), "path": cty.StringVal("jwt-blue"),
		"resource": cty.StringVal("vault_jwt_auth_backend.cluster"),
		"setting":  cty.StringVal("vault_jwt_path"), "policy": cty.StringVal("docs/vault.md"),
		"writes": cty.ListVal([]cty.Value{cty.StringVal("auth/jwt-blue/config"),
			cty.StringVal("sys/policies/acl/castle-blue-grafana")}),
	}
}

func preflight(t *testing.T, w *world, values gate.Values) gate.Preflight {
	t.Helper()
	p, err := mounts().New("vault_mount.free", gate.Target{Environ: w.environ}, values)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func inspect(t *testing.T, w *world, values gate.Values, known ...gate.Known) gate.Inspection {
	t.Helper()
	p := preflight(t, w, values)
	found, err := p.Inspect(t.Context(), known, nil)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestInspectTellsOwnFromForeignMounts(t *testing.T) {
	jwt := emulator.Mount{Type: "jwt", Accessor: "auth_jwt_1"}
	own := gate.Known{Address: "vault_jwt_auth_backend.cluster",
		Attributes: map[string]any{"path": "jwt-blue", "accessor": "auth_jwt_1"}}
	for name, c := range map[string]struct {
		prepare   func(*world)
		known     []gate.Known
		present   bool
		why, ways string // of what is in the way
		mistaken  bool
	}{
		"free": {},
		"there and in the state": {prepare: func(w *world) { w.server.Mount("auth/jwt-blue", jwt) },
			known: []gate.Known{own}, present: true},
		"there and in flight": {prepare: func(w *world) { w.server.Mount("auth/jwt-blue", jwt) },
			known: []gate.Known{{Address: own.Address}}, present: true},
		"ended, and still known": {known: []gate.Known{own}},
		"of the same name elsewhere": {prepare: func(w *world) {
			w.server.Mount("jwt-blue",
				emulator.Mount{Type: "kv"})
		}},
		"somebody else's": {
			prepare: func(w *world) {
				w.server.Mount("auth/jwt-blue",
					jwt)
			}, why: "somebody else's, or the state " +
				"was lost", ways: "castle state restore",
		},
		"another way is named": {prepare: func(w *world) { w.server.Mount("auth/jwt-blue", jwt) },
			why: "somebody else's", ways: "another path: vault_jwt_path"},
		"it may be ended": {prepare: func(w *world) { w.server.Mount("auth/jwt-blue", jwt) },
			why: "somebody else's", ways: "vault auth disable jwt-blue"},
		"mounted anew": {
			prepare: func(w *world) {
				w.server.Mount("auth/jwt-blue", emulator.Mount{Type: "jwt",
					Accessor: "auth_jwt_2"})
			}, known: []gate.Known{own},
			why: "it is not the one that the state knows", ways: "vault auth disable", mistaken: true,
		},
		"the state knows it elsewhere": {
			prepare: func(w *world) { w.server.Mount("auth/jwt-blue", jwt) },
			known: []gate.Known{{Address: own.Address, Attributes: map[string]any{"path": "jwt",
				"accessor": "auth_jwt_0"}}}, why: "the stage's state knows none there",
		},
		"below it": {prepare: func(w *world) { w.server.Mount("auth/jwt-blue/more", jwt) },
			why: "a mount's path may not begin with another's", ways: "vault_jwt_path"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.server.Policy("castle", landing)
			if c.prepare != nil {
				c.prepare(w)
			}
			found := inspect(t, w, site(w), c.known...)
			if len(found.Unusable) > 0 || (len(found.Present) > 0) != c.present ||
				(len(found.Foreign) > 0) != (c.why != "") {
				t.Fatalf("%+v", found)
			}
			for _, f := range found.Foreign {
				if !strings.Contains(f.Why, c.why) || !strings.Contains(strings.Join(f.Fixes, "\n"),
					c.ways) ||
					(f.ConflictsWith != "") != c.mistaken {
					t.Errorf("%+v", f)
				}
			}
		})
	}
}

// TestInspectProvesAMountGone covers the receipt's entry for the mount in the state.
func TestInspectProvesAMountGone(t *testing.T) {
	w := newWorld(t)
	w.server.Policy("castle", landing)
	own := gate.Known{Address: "vault_jwt_auth_backend.cluster"}
	if found := inspect(t, w, site(w)); len(found.Proof) > 0 {
		t.Errorf("nobody had it: %+v", found.Proof)
	}
	if found := inspect(t, w, site(w), own); len(found.Proof) != 1 || !found.Proof[0].Gone ||
		found.Proof[0].Kind != "auth method" || found.Proof[0].ID != "jwt-blue" {
		t.Errorf("gone: %+v", found.Proof)
	}
	w.server.Mount("auth/jwt-blue", emulator.Mount{Type: "jwt"})
	if found := inspect(t, w, site(w), own); len(found.Proof) != 1 || found.Proof[0].Gone ||
		found.Proof[0].Fix != "vault auth disable jwt-blue" {
		t.Errorf("still there: %+v", found.Proof)
	}
	w.server.Set(emulator.State{Sealed: true})
	if found := inspect(t, w, site(w), own); len(found.Proof) != 1 || found.Proof[0].Gone ||
		found.Proof[0].Reason != "not proved: it is sealed" {
		t.Errorf("sealed: %+v", found.Proof)
	}
}

func TestInspectListsAllMissingCapabilities(t *testing.T) {
	w := newWorld(t)
	w.server.Policy("castle", `
path "sys/auth/jwt-*" { capabilities = ["update"] }
path "sys/auth" { capabilities = ["read"] }
path "auth/jwt-*" { capabilities = ["create", "read", "update", "delete"] }
`)
	found := inspect(t, w, site(w))
	if len(found.Unusable) != 1 {
		t.Fatalf("%+v", found)
	}
	why := "the token may not create, delete, sudo sys/auth/jwt-blue; create, read, update, delete " +
		"sys/policies/acl/castle-blue-grafana"
	if f := found.Unusable[0]; !strings.Contains(f.Why, why) ||
		!strings.Contains(f.Fixes[0], "docs/vault.md") {
		t.Errorf("%+v", f)
	}
}

// A destroy would fail after it has begun.
func TestAKnownMountInASealedVaultIsUnseen(t *testing.T) {
	w := newWorld(t)
	w.server.Set(emulator.State{Sealed: true})
	if found := inspect(t, w, site(w)); len(found.Unusable) != 1 || len(found.Unverified) > 0 {
		t.Errorf("nothing is known: %+v", found)
	}
	if found := inspect(t, w, site(w),
		gate.Known{Address: "vault_jwt_auth_backend.cluster"}); len(found.Unusable) != 1 ||
		len(found.Unverified) != 1 {
		t.Errorf("something is known: %+v", found)
	}
}

func TestAnEngineNeedsAKVEngineOfVersion2(t *testing.T) {
	w := newWorld(t)
	w.server.Policy("castle", `
path "sys/mounts" { capabilities = ["read"] }
path "sys/mounts/database-*" { capabilities = ["create", "update", "delete"] }
path "secret/data/blue/database" { capabilities = ["create", "read", "update"] }
path "secret/metadata/blue/database" { capabilities = ["read", "delete"] }
`)
	values := site(w)
	values["kind"], values["path"] = cty.StringVal("secrets"), cty.StringVal("database-blue")
	values["writes"], values["kv_mount"], values["kv_path"] = cty.ListValEmpty(cty.String),
		cty.StringVal("secret"), cty.StringVal("blue/database")
	if found := inspect(t, w, values); len(found.Unusable)+len(found.Foreign) > 0 {
		t.Errorf("free: %+v", found)
	}
	w.server.Mount("database-blue", emulator.Mount{Type: "database"})
	if found := inspect(t, w, values); len(found.Foreign) != 1 ||
		!strings.Contains(strings.Join(found.Foreign[0].Fixes, ""), "vault secrets disable database-blue") {
		t.Errorf("taken: %+v", found)
	}
	w.server.Mount("secret", emulator.Mount{Type: "kv"})
	if found := inspect(t, w, values); len(found.Unusable) != 1 || !strings.Contains(found.Unusable[0].Why,
		"of version 1") {
		t.Errorf("version 1: %+v", found)
	}
}
