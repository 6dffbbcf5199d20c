package talos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ephemeral-castle/castle/internal/foreign"
	"github.com/ephemeral-castle/castle/internal/gate"
)

// Node is one machine, reached at its own address: never at the virtual address, which moves, and never
// through another machine, which may be down.
type Node struct {
	machines *machines
	address  string
	poll     time.Duration // between two looks at a machine that restarts
}

// OpenNode makes no request: a Node connects for each call, as its machine restarts in between.
func OpenNode(talosconfig []byte, address string) (*Node, error) {
	m, err := newMachines(talosconfig, nil)
	if err != nil {
		return nil, fmt.Errorf("machine %s: %w", address, err)
	}
	return &Node{machines: m, address: address, poll: 500 * time.Millisecond}, nil
}

// call connects to the machine and lets do make its requests within the bound. intent completes the sentence
// that the talosconfig's role may not do that.
func (n *Node) call(ctx context.Context, bound time.Duration, intent string,
	do func(context.Context, *client.Client) error) error {
	bounded, stop := context.WithTimeout(ctx, bound)
	defer stop()
	m := *n.machines
	m.timeout = bound
	var answer error
	p := m.call(bounded, n.address, "", func(c *client.Client) error {
		answer = do(bounded, c)
		return answer
	})
	switch code := status.Code(answer); {
	case p == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case p.kind == forbidden:
		p.reason = "the talosconfig's role may not " + intent + " (os:admin may)"
	case code != codes.OK && code != codes.Unavailable && code != codes.DeadlineExceeded &&
		!isOtherAPI(answer):
		p.reason = status.Convert(answer).Message() // the machine's own, perhaps about a registry
	}
	err := fmt.Errorf("machine %s: %s", hostOf(n.address), p.reason)
	if p.permanent {
		return gate.Permanent(err)
	}
	return err
}

// Condition is how a machine is now.
type Condition struct {
	Release   string // of Talos: v1.13.0
	Schematic string // of the image factory; empty if the machine has none
	BootID    string // changes with every start
	Stage     string // of Talos: running, rebooting …
	Ready     bool
	Unmet     []string // why it is not ready: "nodeReady: …"
}

// schematic is the extension by which the image factory records its schematic, as the extension's version.
const schematic = "schematic"

// Condition reads how the machine is. The call is bounded to a few seconds.
func (n *Node) Condition(ctx context.Context) (c Condition, err error) {
	err = n.call(ctx, attempt, "read its state", func(ctx context.Context, api *client.Client) error {
		// The boot id comes first: of a machine that restarts meanwhile, the old id hides what is new.
		if c.BootID, err = bootID(ctx, api); err != nil {
			return err
		}
		answer, err := first(api.Version(ctx))
		if err != nil {
			return err
		}
		c.Release = answer.GetVersion().GetTag()
		if c.Schematic, err = readSchematic(ctx, api); err != nil {
			return err
		}
		status, err := safe.StateGetByID[*runtime.MachineStatus](ctx, api.COSI, runtime.MachineStatusID)
		if err != nil {
			return err
		}
		c.Stage, c.Ready = status.TypedSpec().Stage.String(), status.TypedSpec().Status.Ready
		for _, unmet := range status.TypedSpec().Status.UnmetConditions {
			c.Unmet = append(c.Unmet, unmet.Name+": "+unmet.Reason)
		}
		return nil
	})
	return c, err
}

// readSchematic returns the image factory's id of what is in the image that runs; empty if it has none.
func readSchematic(ctx context.Context, c *client.Client) (id string, err error) {
	extensions, err := safe.StateListAll[*runtime.ExtensionStatus](ctx, c.COSI)
	for e := range extensions.All() {
		if e.TypedSpec().Metadata.Name == schematic {
			id = e.TypedSpec().Metadata.Version
		}
	}
	return id, err
}

func bootID(ctx context.Context, c *client.Client) (string, error) {
	file, err := c.Read(ctx, "/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(io.LimitReader(file, 64))
	id := strings.TrimSpace(string(text))
	if err = errors.Join(err, file.Close()); err == nil && id == "" {
		err = errors.New("does not tell its boot id")
	}
	return id, err
}

// Reboot lets the machine restart, and does not wait for it. Talos drains nothing before.
func (n *Node) Reboot(ctx context.Context) error {
	return n.call(ctx, attempt, "restart it", func(ctx context.Context, c *client.Client) error {
		return c.Reboot(ctx)
	})
}

// AwaitRestart returns once the machine runs with another boot id than before and is running and ready, at
// five looks in a row. say gets each new reason why it is not. Only ctx bounds the wait. Talos gives a new
// release up to 70 minutes before it boots the former one again: who waits for less knows no end.
func (n *Node) AwaitRestart(ctx context.Context, before string, say func(string)) (Condition, error) {
	var now Condition
	var last error
	check := func(ctx context.Context) (err error) {
		if now, err = n.Condition(ctx); err == nil {
			err = n.unready(now, before)
		}
		return err
	}
	err := gate.Wait(ctx, gate.Gate{Name: "restart", Check: check},
		gate.Policy{Timeout: 24 * time.Hour, Stable: 5, First: n.poll, Most: n.poll},
		gate.Listener{Answer: func(why error) {
			if last = why; why != nil {
				say(foreign.Text(why.Error()))
			}
		}})
	switch {
	case gate.IsPermanent(err):
		err = errors.Unwrap(err) // without the gate's name
	case err != nil && last != nil:
		err = fmt.Errorf("%w; last answer: %w", err, last)
	}
	return now, err
}

// AwaitReady returns once the machine is running and ready at five looks in a row.
func (n *Node) AwaitReady(ctx context.Context, say func(string)) error {
	_, err := n.AwaitRestart(ctx, "", say)
	return err
}

// unready returns why the machine is not running and ready since another boot than before.
func (n *Node) unready(c Condition, before string) error {
	why := ""
	switch {
	case c.BootID == before:
		why = "has not restarted yet (it is " + c.Stage + ")"
	case c.Stage != runtime.MachineStageRunning.String(), !c.Ready:
		why = "is " + strings.Join(append([]string{c.Stage + ", not ready"}, c.Unmet...), "; ")
	default:
		return nil
	}
	return fmt.Errorf("machine %s: %s", hostOf(n.address), why)
}
