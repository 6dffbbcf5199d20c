package destroy

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube"
)

// reachable waits until the cluster answers. The helm provider treats a cluster that
// does not answer as one without releases, and would report them as destroyed.
func (d *destruction) reachable(ctx context.Context) error {
	kubeconfig, err := d.kubeconfig()
	if err == nil {
		err = gate.Wait(ctx, kube.Reachable(kubeconfig), gate.Policy{Timeout: time.Minute}, gate.Listener{})
	}
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("what it has in the cluster cannot be deleted: %w\n  if the cluster is gone, %s",
			err, d.endClusterHint())
	}
	return err
}

// kubeconfig returns the authoritative one. If somebody has removed it, it is written
// again from the platform's state, for the providers.
func (d *destruction) kubeconfig() ([]byte, error) {
	data, err := os.ReadFile(d.run.Cluster.Dir.Kubeconfig())
	if !errors.Is(err, fs.ErrNotExist) {
		return data, err
	}
	for _, s := range d.all {
		if out, ok := s.state.Outputs[cluster.KubeconfigOutput]; ok &&
			s.Record.Layer == cluster.PlatformLayer {
			data = []byte(text(out.Value))
			return data, cluster.ReplaceFile(d.run.Cluster.Dir.Kubeconfig(), data)
		}
	}
	return nil, err
}

// endClusterHint explains how to end the objects in the cluster without contacting it.
func (d *destruction) endClusterHint() string {
	if d.graceful {
		return "leave --graceful out: what is in it ends with it"
	}
	i := slices.IndexFunc(d.all, func(s *Stage) bool { return s.Record.EndsCluster })
	if i < 0 {
		return "forget it: " + d.run.Cluster.Command("state forget") + " STAGE ADDRESS…"
	}
	return "destroy its platform with it: leave --only, --from and --to out, or name " +
		d.all[i].Record.Name + ", too"
}

// inClusterBound ends a deletion inside a cluster: a namespace may hang in
// Terminating for ever.
const inClusterBound = 15 * time.Minute

// timeoutCause is the error of a deletion that inClusterBound ended.
func (d *destruction) timeoutCause() error {
	return fmt.Errorf("the cluster did not finish deleting within %s; if it is gone, %s", inClusterBound,
		d.endClusterHint())
}
