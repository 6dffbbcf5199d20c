package vault

import (
	"context"
	"slices"
	"testing"

	"github.com/zclconf/go-cty/cty"

	emulator "github.com/ephemeral-castle/castle/internal/emulator/vault"
	"github.com/ephemeral-castle/castle/internal/gate"
)

// TestALoginsTokenIsRevoked covers success and failure. VAULT_TOKEN belongs to the user, and stays.
func TestALoginsTokenIsRevoked(t *testing.T) {
	for name, does := range map[string]func(context.Context, *world, gate.Preflight) error{
		"usable": func(ctx context.Context, w *world, _ gate.Preflight) error {
			return w.place.Usable(ctx, w.environ)
		},
		"read": func(ctx context.Context, w *world, _ gate.Preflight) error {
			_, err := w.place.Read(ctx, w.environ)
			return err
		},
		"add": func(ctx context.Context, w *world, _ gate.Preflight) error {
			_, err := w.place.Add(ctx, w.environ, map[string]string{"GITHUB_TOKEN": "other"})
			return err
		},
		"token": func(ctx context.Context, w *world, _ gate.Preflight) error {
			_, err := w.place.Server.Token(ctx, w.environ)
			return err
		},
		"mount": func(ctx context.Context, _ *world, p gate.Preflight) error {
			_, err := p.Inspect(ctx, nil, nil)
			return err
		},
		"leases": func(ctx context.Context, _ *world, p gate.Preflight) error {
			return p.Revoke(ctx, []gate.Known{database}, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			values := engine(t, w)
			if err := does(t.Context(), w, preflight(t, w, values)); err != nil {
				t.Errorf("with VAULT_TOKEN: %v", err)
			}
			w.onlyRole(values, policy(t, "secrets/vault")+policy(t, "secrets/vault-database"))
			if err := does(t.Context(), w, preflight(t, w, values)); err != nil {
				t.Errorf("as an AppRole: %v", err)
			}
			w.server.Mount("secret", emulator.Mount{Type: "kv"}) // of version 1
			w.server.Policy("role", "")
			_ = does(t.Context(), w, preflight(t, w, values)) // it may fail now
			if left := w.server.Tokens(); !slices.Equal(left, []string{token}) {
				t.Errorf("let in are still %q", left)
			}
		})
	}
}

func TestRootsLoginIsRevokedAndRefused(t *testing.T) {
	w := newWorld(t)
	w.onlyRole(gate.Values{}, policy(t, "secrets/vault"))
	w.server.Policy("default", `
path "auth/token/lookup-self" { capabilities = ["read"] }
path "sys/capabilities-self" { capabilities = ["update"] }
path "sys/internal/ui/mounts/*" { capabilities = ["read"] }
`)
	if err := w.place.Usable(t.Context(), nil); err != nil {
		t.Errorf("that it may not revoke itself: %v", err)
	}
	w = newWorld(t)
	w.onlyRole(gate.Values{}, "")
	w.server.Role("castle", "s3cret", "root")
	if err := w.place.Usable(t.Context(), nil); err == nil {
		t.Error("root's is taken")
	}
	if left := w.server.Tokens(); !slices.Equal(left, []string{token}) {
		t.Errorf("let in are still %q", left)
	}
}

// onlyRole has castle ask as an AppRole with this policy, and without VAULT_TOKEN.
func (w *world) onlyRole(values gate.Values, text string) {
	w.server.Policy("role", text)
	w.server.Role("castle", "s3cret", "role")
	w.environ = nil
	w.place.Server.Role = Role{Mount: "approle", ID: "castle", Secret: "s3cret"}
	values["role_mount"], values["role_id"], values["role_secret"] = cty.StringVal("approle"),
		cty.StringVal("castle"), cty.StringVal("s3cret")
}
