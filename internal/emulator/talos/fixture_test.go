package talos_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ephemeral-castle/castle/internal/emulator/talos"
)

// step is every delay of the test fleets.
const step = time.Minute

// lab is a fleet in a network of its own on the loopback, and the secrets of the
// cluster that is to run there.
type lab struct {
	fleet   *talos.Fleet
	t       *testing.T
	clock   *clock
	network string
	secrets *secrets.Bundle

	mu         sync.Mutex
	bootstraps []talos.ClusterSpec
	configured []talos.MachineSpec
	shutDown   []string
	down       []string
	holders    []string // of the virtual address, one after another

	database  func(address string) (io.Reader, error) // what etcd answers to a snapshot
	recovered []string                                // snapshots, as "ADDRESS: CONTENT"
	written   bool                                    // by a recovery that fails, which a snapshot "bad" does
	wiped     []string                                // "ADDRESS", with " data" if etcd's data was there
	quorums   []bool                                  // as of each OnQuorum
}

func newLab(t *testing.T) *lab {
	t.Helper()
	// As of Talos 1.7 the key of ServiceAccounts is RSA, and takes a second to make.
	bundle, err := secrets.NewBundle(secrets.NewFixedClock(time.Now()), config.TalosVersion1_6)
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{
		t: t, clock: &clock{}, secrets: bundle,
		network: fmt.Sprintf("127.%d.%d", 1+rand.IntN(254), rand.IntN(256)),
	}
	l.database = func(address string) (io.Reader, error) {
		return strings.NewReader("database of " + address), nil
	}
	record := func(fn func()) {
		l.mu.Lock()
		defer l.mu.Unlock()
		fn()
	}
	l.fleet = talos.New(talos.Config{
		AfterFunc: l.clock.afterFunc,
		Delays: talos.Delays{
			Boot: step, Install: step, Services: step, Etcd: step, Join: step, Promote: step,
			Kubernetes: step, Campaign: step / 2, Session: step, Stop: step / 2,
		},
		Hooks: talos.Hooks{
			OnBootstrap: func(s talos.ClusterSpec) {
				record(
					func() { l.bootstraps = append(l.bootstraps, s) })
			},
			OnMachineConfigured: func(s talos.MachineSpec) {
				record(
					func() { l.configured = append(l.configured, s) })
			},
			OnVirtualIP: func(_, holder string) {
				record(func() {
					l.holders = append(l.holders,
						holder)
				})
			},
			OnShutdown: func(a string) { record(func() { l.shutDown = append(l.shutDown, a) }) },
			OnDown:     func(a string) { record(func() { l.down = append(l.down, a) }) },
			OnError:    func(a string, err error) { t.Errorf("machine %s: %v", a, err) },
			OnReset: func(a string, data bool) {
				if data {
					a += " data"
				}
				record(func() { l.wiped = append(l.wiped, a) })
			},
			OnQuorum: func(ca []byte) {
				has := l.fleet.HasQuorum(ca)
				record(func() { l.quorums = append(l.quorums, has) })
			},
			Recover: func(a string, snapshot []byte, skipHashCheck bool) (bool, error) {
				record(func() { l.recovered = append(l.recovered, a+": "+string(snapshot)) })
				if string(snapshot) == "bad" && !skipHashCheck {
					return l.written, errors.New("error recovering from the snapshot: expected sha256 1, " +
						"got 2")
				}
				return false, nil
			},
			Snapshot: func(_ context.Context, address string) (io.ReadCloser, error) {
				database, err := l.database(address)
				return io.NopCloser(database), err
			},
		},
	})
	t.Cleanup(l.fleet.Close)
	return l
}

func (l *lab) address(n int) string { return fmt.Sprintf("%s.%d", l.network, 10+n) }

func (l *lab) vip() string { return l.network + ".210" }

// bootNew switches on the machine number n, which has a blank disk.
func (l *lab) bootNew(n int) string {
	l.t.Helper()
	if err := l.fleet.Boot(talos.Machine{Address: l.address(n), Name: fmt.Sprintf("blue-%02d",
		n)}); err != nil {
		l.t.Fatal(err)
	}
	return l.address(n)
}

// machineConfig generates a configuration with the lab's secrets.
func (l *lab) machineConfig(kind machine.Type, patches ...string) []byte {
	l.t.Helper()
	input, err := generate.NewInput("blue", "https://"+l.vip()+":6443", "1.36.3",
		generate.WithSecretsBundle(l.secrets))
	if err != nil {
		l.t.Fatal(err)
	}
	config, err := input.Config(kind)
	if err != nil {
		l.t.Fatal(err)
	}
	loaded, err := configpatcher.LoadPatches(patches)
	if err != nil {
		l.t.Fatal(err)
	}
	patched, err := configpatcher.Apply(configpatcher.WithConfig(config), loaded)
	if err != nil {
		l.t.Fatal(err)
	}
	data, err := patched.Bytes()
	if err != nil {
		l.t.Fatal(err)
	}
	return data
}

// anyone connects as a client that knows nothing of the machine.
func (l *lab) anyone(address string) *client.Client {
	return l.connect(client.WithTLSConfig(&tls.Config{InsecureSkipVerify: true}),
		client.WithEndpoints(address))
}

// as connects with the cluster's talosconfig for a client of that role.
func (l *lab) as(r role.Role, address string) *client.Client {
	l.t.Helper()
	input, err := generate.NewInput("blue", "https://"+l.vip()+":6443", "1.36.3",
		generate.WithSecretsBundle(l.secrets), generate.WithRoles(role.MakeSet(r)),
		generate.WithEndpointList([]string{address}))
	if err != nil {
		l.t.Fatal(err)
	}
	config, err := input.Talosconfig()
	if err != nil {
		l.t.Fatal(err)
	}
	return l.connect(client.WithConfig(config))
}

func (l *lab) connect(options ...client.OptionFunc) *client.Client {
	l.t.Helper()
	c, err := client.New(l.t.Context(), options...)
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { _ = c.Close() })
	return c
}

// apply sends a configuration as anyone does in maintenance mode.
func (l *lab) apply(address string, config []byte) error {
	_, err := l.anyone(address).ApplyConfiguration(l.t.Context(),
		&machineapi.ApplyConfigurationRequest{Data: config})
	return err
}

// raise boots and configures control planes 1…cps, with the patches, and then
// workers, until their services run.
func (l *lab) raise(cps, workers int, patches ...string) {
	l.t.Helper()
	for n := 1; n <= cps+workers; n++ {
		l.bootNew(n)
	}
	l.clock.advance(step)
	for n := 1; n <= cps+workers; n++ {
		config := l.machineConfig(machine.TypeWorker)
		if n <= cps {
			config = l.machineConfig(machine.TypeControlPlane, patches...)
		}
		if err := l.apply(l.address(n), config); err != nil {
			l.t.Fatalf("configuring machine %d: %v", n, err)
		}
	}
	l.clock.advance(2 * step)
	for n := 1; n <= cps+workers; n++ {
		if got := l.fleet.Stage(l.address(n)); got != talos.Running {
			l.t.Fatalf("machine %d is %s", n, got)
		}
	}
}

// quorum raises control planes until all of them vote.
func (l *lab) quorum(cps, workers int) {
	l.t.Helper()
	l.raise(cps, workers)
	if err := l.bootstrap(l.address(1)); err != nil {
		l.t.Fatal(err)
	}
	l.clock.advance(10 * step)
}

func (l *lab) bootstrap(address string) error {
	return l.as(role.Admin, address).Bootstrap(l.t.Context(), &machineapi.BootstrapRequest{})
}

// members reads the member list as "blue-01, blue-02 learner, ? learner".
func (l *lab) members(address string) string {
	l.t.Helper()
	resp, err := l.as(role.Admin, address).EtcdMemberList(l.t.Context(), &machineapi.EtcdMemberListRequest{})
	if err != nil {
		return err.Error()
	}
	var listed []string
	for _, m := range resp.GetMessages()[0].GetMembers() {
		name := m.GetHostname()
		if name == "" {
			name = "?"
		}
		if m.GetIsLearner() {
			name += " learner"
		}
		listed = append(listed, name)
	}
	return strings.Join(listed, ", ")
}

// wantRefusal fails unless err has the code and the text.
func wantRefusal(t *testing.T, err error, code codes.Code, text string) {
	t.Helper()
	if status.Code(err) != code || !strings.Contains(err.Error(), text) {
		t.Errorf("got %v, want %s %q", err, code, text)
	}
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}
