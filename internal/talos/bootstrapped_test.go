package talos

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"

	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"github.com/zclconf/go-cty/cty"

	emulator "github.com/ephemeral-castle/castle/internal/emulator/talos"
	"github.com/ephemeral-castle/castle/internal/gate"
)

// bootstrapped creates the check of control planes 1…n with the client configuration
// of this role.
func (l *lab) bootstrapped(n int, r role.Role) gate.Exists {
	l.t.Helper()
	config, err := clientconfig.FromBytes(l.talosconfig(r, l.address(1)))
	if err != nil {
		l.t.Fatal(err)
	}
	c := config.Contexts[config.Context]
	endpoints := map[string]cty.Value{}
	for i := range n {
		endpoints[fmt.Sprintf("cp-%02d", i+1)] = cty.StringVal(l.address(i + 1))
	}
	q, err := ExistsTypes()[0].New("talos_bootstrapped", gate.Target{}, gate.Values{
		"endpoints": cty.MapVal(endpoints),
		"client_configuration": cty.ObjectVal(map[string]cty.Value{
			"ca_certificate": cty.StringVal(c.CA), "client_certificate": cty.StringVal(c.Crt),
			"client_key": cty.StringVal(c.Key),
		}),
	})
	if err != nil {
		l.t.Fatal(err)
	}
	return q
}

// answers waits until the check succeeds and compares its result.
func answers(t *testing.T, q gate.Exists, want bool) {
	t.Helper()
	await(t, gate.Gate{Name: "answer", Check: func(ctx context.Context) error {
		got, err := q.Lookup(ctx)
		if err == nil && got != want {
			return gate.Permanent(fmt.Errorf("bootstrapped: %v, want %v", got, want))
		}
		return err
	}})
}

// refused waits until the check has a permanent error, and returns it.
func refused(t *testing.T, q gate.Exists) error {
	t.Helper()
	var lasting error
	await(t, gate.Gate{Name: "refusal", Check: func(ctx context.Context) error {
		there, err := q.Lookup(ctx)
		if err == nil {
			return gate.Permanent(fmt.Errorf("an answer: %v", there))
		}
		if lasting = err; gate.IsPermanent(err) {
			return nil
		}
		return err
	}})
	return lasting
}

func TestBootstrappedReadsEtcdDataOfTheMachines(t *testing.T) {
	l := newLab(t, emulator.Delays{})
	q := l.bootstrapped(1, role.Admin)
	if there, err := q.Lookup(t.Context()); there || err == nil || gate.IsPermanent(err) ||
		!strings.Contains(err.Error(), "connection refused") {
		t.Errorf("a machine that does not answer: %v, %v", there, err)
	}
	l.bootNew(2)
	waiting := l.bootstrapped(2, role.Admin)
	if there, err := waiting.Lookup(t.Context()); there || err == nil {
		t.Errorf("one of two does not answer: %v, %v", there, err)
	}
	l.configure(1, machine.TypeControlPlane)
	answers(t, q, false)
	answers(t, waiting, false) // the other one waits for its configuration
	l.bootstrap(1)
	answers(t, q, true)
}

// TestBootstrappedIsTrueWithDataOnOneControlPlane replaces a lost control plane by a blank one: its
// bootstrap would found a second cluster.
func TestBootstrappedIsTrueWithDataOnOneControlPlane(t *testing.T) {
	l := newLab(t, emulator.Delays{})
	l.bootNew(1)
	l.configure(2, machine.TypeControlPlane)
	l.bootstrap(2)
	answers(t, l.bootstrapped(3, role.Admin), true)
}

func TestBootstrappedFailsOnMachinesWithOtherSecrets(t *testing.T) {
	l := newLab(t, emulator.Delays{})
	l.raise(1)
	answers(t, l.bootstrapped(1, role.Admin), true)
	others := newLab(t, emulator.Delays{})
	others.network = l.network
	err := refused(t, others.bootstrapped(1, role.Admin))
	if !errors.Is(err, ErrOtherSecrets) || !strings.HasPrefix(err.Error(), l.address(1)+": ") {
		t.Error(err)
	}
	err = refused(t, l.bootstrapped(1, role.EtcdBackup))
	if !strings.Contains(err.Error(), "role may not read") {
		t.Errorf("a role without the right: %v", err)
	}
}

func TestInvalidKeyIsNamedAndNotPrinted(t *testing.T) {
	text := cty.StringVal(base64.StdEncoding.EncodeToString([]byte("x")))
	_, err := ExistsTypes()[0].New("talos_bootstrapped", gate.Target{}, gate.Values{
		"client_configuration": cty.ObjectVal(map[string]cty.Value{
			"ca_certificate": text, "client_certificate": text, "client_key": cty.StringVal("?hush?"),
		}),
	})
	if err == nil || !strings.Contains(err.Error(), "client_key is not valid base64") ||
		strings.Contains(err.Error(), "hush") {
		t.Error(err)
	}
}
