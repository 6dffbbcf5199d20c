// Package vaulttest gives tests a real Vault of their own.
package vaulttest

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/ephemeral-castle/castle/lab/internal/front"
	"github.com/ephemeral-castle/castle/lab/internal/vault"
)

// Start starts the program that `make build` puts into bin/, which lies below
// root, and ends it with the test.
func Start(t *testing.T, root string) *vault.Server {
	t.Helper()
	program, err := filepath.Abs(filepath.Join(root, "bin", vault.Program))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(program); err != nil {
		t.Fatalf("%v: run `make build`", err)
	}
	a, err := front.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	// It outlives the test's context, which ends before the cleanup does.
	s, err := vault.Start(context.WithoutCancel(t.Context()), vault.Options{
		Program: program, Dir: filepath.Join(t.TempDir(), "vault"), Address: netip.MustParseAddr("127.0.7.9"),
		Authority: a, Log: t.Output(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}
