package talos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/client"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/role"

	emulator "github.com/ephemeral-castle/castle/internal/emulator/talos"
	"github.com/ephemeral-castle/castle/internal/gate"
)

// node is machine n as castle reaches it, for a client of that role.
func (l *lab) node(n int, r role.Role) *Node {
	l.t.Helper()
	node, err := OpenNode(l.talosconfig(r, l.vip()), l.address(n))
	if err != nil {
		l.t.Fatal(err)
	}
	node.poll = 5 * time.Millisecond
	return node
}

// serving raises a cluster of control planes and a worker, until all are running and ready.
func (l *lab) serving(cps int) {
	l.t.Helper()
	l.raise(cps)
	l.configure(cps+1, machine.TypeWorker)
	for n := 1; n <= cps+1; n++ {
		if err := l.node(n, role.Admin).AwaitReady(l.bounded(), func(string) {}); err != nil {
			l.t.Fatal(err)
		}
	}
	await(l.t, l.gate(cps, l.talosconfig(role.Admin, l.addresses(cps)...)))
}

func (l *lab) bounded() context.Context {
	ctx, stop := context.WithTimeout(l.t.Context(), testTimeout)
	l.t.Cleanup(stop)
	return ctx
}

// condition waits until the machine answers.
func (l *lab) condition(n int) (c Condition) {
	l.t.Helper()
	await(l.t, gate.Gate{Name: "condition", Check: func(ctx context.Context) (err error) {
		c, err = l.node(n, role.Admin).Condition(ctx)
		return err
	}})
	return c
}

// words keeps the lines of progress.
type words struct {
	mu  sync.Mutex
	all []string
}

func (w *words) say(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, text)
}

func (w *words) has(text string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.all, func(line string) bool { return strings.Contains(line, text) })
}

func (w *words) lines() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.all)
}

// brake holds back the steps of a fleet by their duration; those that it does not hold take no time.
type brake struct {
	mu   sync.Mutex
	held map[time.Duration]chan struct{}
}

// The steps that a test can hold back.
const stop, boot, installation = time.Hour, 2 * time.Hour, 3 * time.Hour

// newHeldLab is a lab whose steps wait for the test.
func newHeldLab(t *testing.T) (*lab, *brake) {
	t.Helper()
	l, b := newLab(t, emulator.Delays{}), &brake{held: map[time.Duration]chan struct{}{}}
	l.fleet = emulator.New(emulator.Config{
		Delays: emulator.Delays{Stop: stop, Boot: boot, Install: installation},
		AfterFunc: func(d time.Duration, f func()) {
			b.mu.Lock()
			defer b.mu.Unlock()
			held := b.held[d]
			if held == nil {
				time.AfterFunc(0, f)
				return
			}
			go func() {
				<-held
				f()
			}()
		},
	})
	t.Cleanup(l.fleet.Close)
	return l, b
}

// hold keeps back the steps of that duration until release.
func (b *brake) hold(d time.Duration) (release func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	held := make(chan struct{})
	b.held[d] = held
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.held, d)
		close(held)
	}
}

func TestConditionIsWhatTheMachineReports(t *testing.T) {
	l := newLab(t, emulator.Delays{})
	l.serving(1)
	c := l.condition(1)
	if c.Release != "v1.13.0" || c.Stage != "running" || !c.Ready || len(c.Unmet) > 0 || c.Schematic != "" ||
		len(c.BootID) != 36 {
		t.Errorf("got %+v", c)
	}
	if err := l.fleet.SetUnmet("blue-01", "nodeReady", "its CNI is missing"); err != nil {
		t.Fatal(err)
	}
	if c := l.condition(1); c.Ready || !slices.Equal(c.Unmet, []string{"nodeReady: its CNI is missing"}) {
		t.Errorf("got %+v", c)
	}
	_, err := l.node(1, role.Reader).Condition(t.Context())
	if !gate.IsPermanent(err) || err.Error() != "machine "+l.address(1)+
		": the talosconfig's role may not read its state (os:admin may)" {
		t.Errorf("a reader: %v", err)
	}
	l.fleet.Halt(l.address(1))
	if _, err := l.node(1, role.Admin).Condition(t.Context()); err == nil ||
		err.Error() != "machine "+l.address(1)+": connection refused" {
		t.Errorf("a machine that is off: %v", err)
	}
	if _, err := OpenNode([]byte("no: talosconfig"), l.address(1)); err == nil {
		t.Error("no talosconfig is one")
	}
}

func TestAMachineThatNeverAnswersDoesNotHoldTheCall(t *testing.T) {
	l := newLab(t, emulator.Delays{})
	l.mute(l.address(1))
	err := l.node(1, role.Admin).call(t.Context(), 50*time.Millisecond, "read its state",
		func(ctx context.Context, c *client.Client) error {
			_, err := c.Version(ctx)
			return err
		})
	if err == nil || err.Error() != "machine "+l.address(1)+": no answer within 50ms" {
		t.Errorf("got %v", err)
	}
}

func TestARestartIsAnotherBootThatIsReady(t *testing.T) {
	l, steps := newHeldLab(t)
	l.serving(1)
	n, progress := l.node(1, role.Admin), &words{}
	before := l.condition(1)
	stopped, booted := sync.OnceFunc(steps.hold(stop)), sync.OnceFunc(steps.hold(boot))
	if err := n.Reboot(t.Context()); err != nil {
		t.Fatal(err)
	}
	after, err := n.AwaitRestart(l.bounded(), before.BootID, func(text string) {
		progress.say(text)
		if strings.Contains(text, "has not restarted yet") {
			stopped()
		} else {
			booted()
		}
	})
	if err != nil || after.BootID == before.BootID || after.Stage != "running" || !after.Ready {
		t.Errorf("%+v, %v", after, err)
	}
	if !progress.has("has not restarted yet (it is rebooting)") || len(progress.all) < 2 {
		t.Errorf("progress: %q", progress.all)
	}
	for i := range progress.all[1:] {
		if progress.all[i] == progress.all[i+1] {
			t.Errorf("progress twice: %s", progress.all[i])
		}
	}
	wait, stop := context.WithCancelCause(t.Context())
	_, err = n.AwaitRestart(wait, after.BootID, func(string) { stop(errors.New("interrupted")) })
	if err == nil || err.Error() != "interrupted; last answer: machine "+l.address(1)+
		": has not restarted yet (it is running)" {
		t.Errorf("got %v", err)
	}
}

func TestAMachineIsReadyWithItsLastCondition(t *testing.T) {
	l := newLab(t, emulator.Delays{})
	l.serving(1)
	if err := l.fleet.SetUnmet("blue-01", "nodeReady", "not\x1b[2J yet"); err != nil {
		t.Fatal(err)
	}
	progress, done := &words{}, make(chan error, 1)
	go func() { done <- l.node(1, role.Admin).AwaitReady(l.bounded(), progress.say) }()
	await(t, gate.Gate{Name: "reason", Check: func(context.Context) error {
		if !progress.has(`is running, not ready; nodeReady: not\u001b[2J yet`) {
			return fmt.Errorf("progress: %q", progress.lines())
		}
		return nil
	}})
	if err := l.fleet.SetUnmet("blue-01", "nodeReady", ""); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	err := l.node(1, role.Reader).AwaitReady(l.bounded(), progress.say)
	if !gate.IsPermanent(err) ||
		!strings.HasPrefix(err.Error(), "machine "+l.address(1)+": the talosconfig's") {
		t.Errorf("a reader: %v", err)
	}
}

// configOf is the talosconfig of an administrator.
func (l *lab) configOf() *clientconfig.Config {
	l.t.Helper()
	parsed, err := clientconfig.FromBytes(l.talosconfig(role.Admin, l.vip()))
	if err != nil {
		l.t.Fatal(err)
	}
	return parsed
}
