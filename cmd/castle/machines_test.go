package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"

	emulator "github.com/ephemeral-castle/castle/internal/emulator/talos"
)

type machinesKey struct{}

// machines are the unmanaged machines of one script: number 1 is at $TF_VAR_machine_1.
// TF_VAR_client_configuration holds the administrator credentials of their cluster.
type machines struct {
	talos      *emulator.Fleet
	network    string
	own, other *generate.Input
	configured chan string // addresses of machines that run with a configuration
}

func newMachines(defers func(func())) (*machines, error) {
	m := &machines{network: fmt.Sprintf("127.%d.%d", 1+rand.IntN(254), rand.IntN(256)),
		configured: make(chan string, 8)}
	m.talos = emulator.New(emulator.Config{
		Hooks: emulator.Hooks{OnMachineConfigured: func(s emulator.MachineSpec) {
			m.configured <- s.Address
		}},
	})
	defers(m.talos.Close)
	for _, input := range []**generate.Input{&m.own, &m.other} {
		// As of Talos 1.7 the key of ServiceAccounts is RSA, and takes a second to make.
		bundle, err := secrets.NewBundle(secrets.NewFixedClock(time.Now()), config.TalosVersion1_6)
		if err != nil {
			return nil, err
		}
		if *input, err = generate.NewInput("green", "https://"+m.network+".10:6443", "1.36.3",
			generate.WithSecretsBundle(bundle)); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *machines) address(number int) string { return fmt.Sprintf("%s.%d", m.network, 10+number) }

func (m *machines) environ() (map[string]string, error) {
	config, err := m.own.Talosconfig()
	if err != nil {
		return nil, err
	}
	c := config.Contexts[config.Context]
	return map[string]string{
		"TF_VAR_machine_1": m.address(1), "TF_VAR_machine_2": m.address(2),
		"TF_VAR_client_configuration": fmt.Sprintf("{ ca_certificate = %q, client_certificate = %q, "+
			"client_key = %q }", c.CA, c.Crt, c.Key),
	}, nil
}

// talos acts on the script's machines, each identified by its number:
//
//	talos place N       powers it on; it waits for a configuration
//	talos configure N   configures it for the script's cluster
//	talos foreign N     configures it for another cluster
//	talos reset N       resets it; it waits for a configuration again
//	talos off N         powers it off; requests get no answer
func talos(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: talos place|configure|foreign|reset|off N")
	}
	slot := ts.Value(machinesKey{}).(**machines)
	if *slot == nil { // started when a script first speaks of machines
		var err error
		*slot, err = newMachines(ts.Defer)
		ts.Check(err)
		environ, err := (*slot).environ()
		ts.Check(err)
		for name, value := range environ {
			ts.Setenv(name, value)
		}
	}
	m := *slot
	number, err := strconv.Atoi(args[1])
	ts.Check(err)
	address := m.address(number)
	place := func() error {
		return m.talos.Place(emulator.Machine{Address: address, Name: "machine-" + args[1]})
	}
	switch args[0] {
	case "place":
		ts.Check(place())
	case "configure":
		ts.Check(m.configure(address, m.own))
	case "foreign":
		ts.Check(m.configure(address, m.other))
	case "reset":
		m.talos.Remove(address)
		ts.Check(place())
	case "off":
		m.talos.Remove(address)
	default:
		ts.Fatalf("talos %s: unknown", args[0])
	}
}

// configure gives a machine a configuration and returns when it runs with it.
func (m *machines) configure(address string, input *generate.Input) error {
	config, err := input.Config(machine.TypeControlPlane)
	if err != nil {
		return err
	}
	data, err := config.Bytes()
	if err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	//nolint:gosec // maintenance mode
	c, err := client.New(ctx, client.WithTLSConfig(&tls.Config{InsecureSkipVerify: true}),
		client.WithEndpoints(address))
	if err != nil {
		return err
	}
	defer c.Close() //nolint:errcheck // it was written
	if _, err := c.ApplyConfiguration(ctx, &machineapi.ApplyConfigurationRequest{Data: data}); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case done := <-m.configured:
			if done == address {
				return nil
			}
		}
	}
}
