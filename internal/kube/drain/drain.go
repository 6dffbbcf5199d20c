// Package drain takes the Pods off a node before its machine restarts, and lets it take Pods again. Drain
// does what kubectl drain does, in a loop of its own. That of kubectl (k8s.io/kubectl/pkg/drain) ends with
// the first request that fails, and the API is away for seconds while control planes restart. It reports the
// reason to wait only as a text, and would add a sixth to castle's size.
package drain

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/siderolabs/gen/xslices"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ephemeral-castle/castle/internal/foreign"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube"
	"github.com/ephemeral-castle/castle/internal/kube/client"
)

// cordonedBy is the annotation of a node that castle has cordoned. Its value is the id of the run.
const cordonedBy = "castle.ephemeral/cordoned-by"

// Cordon marks a node as unschedulable and as cordoned by a run of castle. A node that somebody else has
// cordoned stays so; Cordon only reports it. Talos does not uncordon a node that castle has cordoned.
func Cordon(ctx context.Context, target gate.Target, node, run string) (foreign bool, err error) {
	err = client.Retry(ctx, target, func(ctx context.Context, a *client.API) error {
		have, err := a.Get(ctx, client.Selection{Resource: client.Core("nodes"), Name: node}, "Node")
		if err != nil {
			return err
		}
		cordoned, by := client.True(have, "spec", "unschedulable"), have.GetAnnotations()[cordonedBy]
		if foreign = cordoned && by == ""; foreign || cordoned && by == run {
			return nil
		}
		return a.Change(ctx, client.Core("nodes"), have, map[string]any{cordonedBy: run},
			map[string]any{"unschedulable": true})
	})
	return foreign, err
}

// Uncordon lifts castle's own cordon, and no other one. A node that does not exist has none.
func Uncordon(ctx context.Context, target gate.Target, node string) error {
	return client.Retry(ctx, target, func(ctx context.Context, a *client.API) error {
		have, err := a.Get(ctx, client.Selection{Resource: client.Core("nodes"), Name: node}, "Node")
		if gate.KindOf(err) == gate.NotFound {
			return nil
		}
		if err != nil || have.GetAnnotations()[cordonedBy] == "" {
			return err
		}
		return a.Change(ctx, client.Core("nodes"), have, map[string]any{cordonedBy: nil},
			map[string]any{"unschedulable": nil})
	})
}

// By is who has cordoned a node.
type By int

// Who cordons a node.
const (
	Nobody By = iota
	Castle    // as a killed run leaves it
	Others
)

// Nodes tells of each registered node, by name, who has cordoned it.
func Nodes(ctx context.Context, target gate.Target) (cordoned map[string]By, err error) {
	err = client.Retry(ctx, target, func(ctx context.Context, a *client.API) error {
		nodes, err := a.List(ctx, client.Selection{Resource: client.Core("nodes")}, "Node")
		cordoned = map[string]By{}
		for _, node := range nodes {
			switch {
			case node.GetAnnotations()[cordonedBy] != "":
				cordoned[node.GetName()] = Castle
			case client.True(&node, "spec", "unschedulable"):
				cordoned[node.GetName()] = Others
			default:
				cordoned[node.GetName()] = Nobody
			}
		}
		return err
	})
	return cordoned, err
}

// Drain evicts the Pods of a cordoned node, within their budgets, and waits until they are gone. DaemonSets'
// and static Pods stay, as do finished ones; the data of an emptyDir goes. Pods that no controller starts
// again are evicted only with force. say receives each new reason to wait, once. Drain returns at the latest
// when ctx ends, with the reasons.
func Drain(ctx context.Context, target gate.Target, node string, force bool, say func(string)) error {
	d := drain{target: target, cluster: client.New(target, ""), node: node, force: force,
		longest: 2 * time.Second, pods: map[types.UID]bool{}}
	return d.run(ctx, say)
}

// wait is a reason to wait. A usual one passes in a moment, and nobody needs to read it before.
type wait struct {
	reason string
	usual  bool
}

type drain struct {
	target  gate.Target
	cluster *client.Cluster
	node    string
	force   bool
	longest time.Duration // pause between two passes; they grow, as most Pods end in a moment
	// pods are those that were found in the first two passes, or before such a pause was over. A Pod that
	// tolerates the cordon starts again on the same node, for ever; one whose scheduling was under way when
	// the node was cordoned is on it soon.
	pods   map[types.UID]bool
	passes int
	began  time.Time
}

func (d *drain) run(ctx context.Context, say func(string)) error {
	told, failures := map[string]bool{}, 0
	var waits []wait
	d.began = time.Now()
	for pause := d.longest / 8; ; pause = min(2*pause, d.longest) {
		found, err := d.pass(ctx)
		switch {
		case ctx.Err() != nil:
			return d.ended(ctx, waits)
		case gate.IsPermanent(err):
			return fmt.Errorf("drain of node %s: %w", d.node, err)
		case err != nil:
			failures++
			found = []wait{{"waits for an answer: " + err.Error(), failures == 1}}
		case len(found) == 0:
			return nil
		default:
			failures = 0
		}
		waits = found
		for _, w := range waits {
			if !w.usual && !told[w.reason] {
				told[w.reason] = true
				say(foreign.Text(w.reason))
			}
		}
		if !gate.Sleep(ctx, pause) {
			return d.ended(ctx, waits)
		}
	}
}

func (d *drain) ended(ctx context.Context, waits []wait) error {
	reasons := xslices.Map(waits, func(w wait) string { return foreign.Text(w.reason) })
	if len(reasons) == 0 {
		reasons = []string{"the Kubernetes API has not answered"}
	}
	return fmt.Errorf("node %s is not drained (%s): %w", d.node, client.Several(reasons), context.Cause(ctx))
}

// pass evicts the Pods that are left, and returns why each one is still there.
func (d *drain) pass(ctx context.Context) (waits []wait, err error) {
	isProtected := false
	err = d.cluster.Check(func(ctx context.Context, a *client.API) error {
		on, err := podsOn(ctx, a, d.node)
		if err != nil {
			return err
		}
		on = slices.DeleteFunc(on, func(p corev1.Pod) bool {
			if d.passes < 2 || time.Since(d.began) < d.longest {
				d.pods[p.UID] = true
			}
			return !d.pods[p.UID]
		})
		if lost := unmanaged(on); len(lost) > 0 && !d.force {
			return gate.Permanent(fmt.Errorf("no controller would start %s again; delete it, or pass "+
				"--force", strings.Join(lost, ", ")))
		}
		budgets, err := listBudgets(ctx, a)
		if err != nil {
			return err
		}
		d.passes++
		waits, isProtected, err = evictAll(ctx, a, on, budgets)
		return err
	})(ctx)
	if err != nil || !isProtected {
		return waits, err
	}
	blocked, err := kube.BlockingVolumes(ctx, d.target, d.node)
	return append(waits, xslices.Map(blocked, func(one string) wait { return wait{reason: one} })...), err
}
