package kubernetes

import (
	"context"
	"fmt"
	"net/url"
	"path/filepath"

	"go.etcd.io/etcd/server/v3/embed"
)

// startEtcd runs a one-member etcd and returns its client URL. It listens on unix sockets in the
// private directory, because over TCP it would authenticate no client. It never syncs, because its
// data need not survive a crash of the machine.
func startEtcd(ctx context.Context, dir string) (string, error) {
	c := embed.NewConfig()
	c.Dir = filepath.Join(dir, "etcd")
	c.UnsafeNoFsync = true
	c.LogLevel = "error"
	c.LogOutputs = []string{filepath.Join(dir, "etcd.log")}
	client := url.URL{Scheme: "unix", Path: socket(dir)}
	peer := url.URL{Scheme: "unix", Path: filepath.Join(dir, "peer.sock")}
	c.ListenClientUrls, c.ListenPeerUrls = []url.URL{client}, []url.URL{peer}
	// Advertised addresses must have the form host:port; a single member never dials them.
	advertised := []url.URL{{Scheme: "http", Host: "localhost:2380"}}
	c.AdvertiseClientUrls, c.AdvertisePeerUrls = advertised, advertised
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	c.TickMs, c.ElectionMs = 20, 100
	e, err := embed.StartEtcd(c)
	if err != nil {
		return "", err
	}
	select {
	case <-e.Server.ReadyNotify():
		return client.String(), nil
	case err := <-e.Err():
		return "", err
	case <-e.Server.StopNotify():
		return "", fmt.Errorf("stopped before it was ready: see %s", c.LogOutputs[0])
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}
