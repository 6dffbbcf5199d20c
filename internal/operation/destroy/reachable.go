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

// reachable asks whether the cluster is there. The helm provider takes a cluster
// that does not answer for one without releases: it would drop them from the
// state and report them as destroyed.
func (r *destruction) reachable(ctx context.Context) error {
	kubeconfig, err := r.kubeconfig()
	if err == nil {
		err = gate.Wait(ctx, kube.Reachable(kubeconfig), gate.Policy{Timeout: time.Minute}, gate.Listener{})
	}
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("what it has in the cluster cannot be deleted: %w\n  if the cluster is gone, %s", err, r.endClusterHint())
	}
	return err
}

// kubeconfig is the authoritative one. Where somebody has removed it, the platform's
// state still says it, and it is put back for the providers.
func (r *destruction) kubeconfig() ([]byte, error) {
	data, err := os.ReadFile(r.run.Cluster.Dir.Kubeconfig())
	if !errors.Is(err, fs.ErrNotExist) {
		return data, err
	}
	for _, d := range r.all {
		if out, said := d.state.Outputs[cluster.KubeconfigOutput]; said && d.Record.Layer == cluster.PlatformLayer {
			data = []byte(text(out.Value))
			return data, cluster.ReplaceFile(r.run.Cluster.Dir.Kubeconfig(), data)
		}
	}
	return nil, err
}

// collapse is how what is in the cluster ends without being asked.
func (r *destruction) endClusterHint() string {
	if r.graceful {
		return "leave --graceful out: what is in it ends with it"
	}
	i := slices.IndexFunc(r.all, func(d *Stage) bool { return d.Record.EndsCluster })
	if i < 0 {
		return "forget it: " + r.run.Cluster.Command("state forget") + " STAGE ADDRESS…"
	}
	return "destroy its platform with it: leave --only, --from and --to out, or name " + r.all[i].Record.Name + ", too"
}

// inClusterBound ends a deletion inside a cluster that does not come to its
// end: a namespace may hang in Terminating for ever.
const inClusterBound = 15 * time.Minute

// silent is what a deletion that was ended by the bound says.
func (r *destruction) timeoutCause() error {
	return fmt.Errorf("the cluster did not finish deleting within %s; if it is gone, %s", inClusterBound, r.endClusterHint())
}
