package talos

import (
	"context"
	"time"

	"github.com/cosi-project/runtime/api/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
)

// The pauses before a watch that could not begin, or has ended, is begun again.
const (
	firstPause   = 250 * time.Millisecond
	longestPause = 2 * time.Second
)

// addressChanges is a gate's Changed: it tells when a machine's addresses may
// have changed. A watch that ends, because its machine boots or installs itself,
// is begun again; that it begins counts as a change.
func (m *machines) addressChanges(ctx context.Context) <-chan struct{} {
	changed := make(chan struct{}, 1)
	tell := func() {
		select {
		case changed <- struct{}{}:
		default: // it has been told and not yet looked
		}
	}
	for _, endpoint := range m.endpoints {
		go m.follow(ctx, endpoint, tell)
	}
	return changed
}

func (m *machines) follow(ctx context.Context, endpoint string, tell func()) {
	for pause := firstPause; ctx.Err() == nil; pause = min(2*pause, longestPause) {
		if m.watchAddresses(ctx, endpoint, tell) {
			pause = firstPause
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// watchAddresses returns when the watch has ended, and whether it had begun.
func (m *machines) watchAddresses(ctx context.Context, endpoint string, tell func()) (began bool) {
	c, problem := m.connect(ctx, endpoint)
	if problem != nil {
		return false
	}
	defer func() { _ = c.Close() }() //nolint:errcheck // nothing was written
	stream, err := v1alpha1.NewStateClient(c.Conn()).Watch(ctx, &v1alpha1.WatchRequest{
		Namespace: network.NamespaceName, Type: network.AddressStatusType, ApiVersion: 1, Options: &v1alpha1.WatchOptions{},
	})
	for err == nil {
		if _, err = stream.Recv(); err == nil { // the first message says that it has begun
			began = true
			tell()
		}
	}
	return began
}
