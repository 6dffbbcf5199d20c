package datacenter

import (
	"context"
	"errors"
	"io"

	"github.com/ephemeral-castle/castle/lab/internal/kubernetes"
)

// snapshot reads the one real etcd, which stands for the members of all control planes.
func (k *kube) snapshot(ctx context.Context, address string) (io.ReadCloser, error) {
	k.mu.Lock()
	c := k.cluster
	serves := c != nil && c.running()
	k.mu.Unlock()
	if !serves {
		return nil, errors.New("context deadline exceeded") // its process is about to start
	}
	k.log.say("talos %s: etcd sends a snapshot", address)
	return kubernetes.Snapshot(ctx, c.dir)
}
