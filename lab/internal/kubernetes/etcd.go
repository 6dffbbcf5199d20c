package kubernetes

import (
	"context"
	"fmt"
	"net/url"
	"path/filepath"

	"go.etcd.io/etcd/server/v3/embed"
)

// advertised is the address that etcd gives for itself. It must have the form host:port; a single member
// never dials it.
const advertised = "http://localhost:2380"

// socket is where etcd listens, and dataDir what it keeps, in the directory of a control plane.
func socket(dir string) string  { return filepath.Join(dir, "etcd.sock") }
func dataDir(dir string) string { return filepath.Join(dir, "etcd") }

// startEtcd runs a one-member etcd, whose changes it counts, and returns its client URL. It listens on unix
// sockets in the private directory, because over TCP it would authenticate no client. It never syncs, because
// its data need not survive a crash of the machine.
func startEtcd(ctx context.Context, dir string, counted *changes) (string, error) {
	c := embed.NewConfig()
	c.Dir = dataDir(dir)
	c.UnsafeNoFsync = true
	c.LogLevel = "error"
	c.LogOutputs = []string{filepath.Join(dir, "etcd.log")}
	client := url.URL{Scheme: "unix", Path: socket(dir)}
	peer := url.URL{Scheme: "unix", Path: filepath.Join(dir, "peer.sock")}
	c.ListenClientUrls, c.ListenPeerUrls = []url.URL{client}, []url.URL{peer}
	own, err := url.Parse(advertised)
	if err != nil {
		return "", err
	}
	c.AdvertiseClientUrls, c.AdvertisePeerUrls = []url.URL{*own}, []url.URL{*own}
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	c.TickMs, c.ElectionMs = 20, 100
	e, err := embed.StartEtcd(c)
	if err != nil {
		return "", err
	}
	select {
	case <-e.Server.ReadyNotify():
		return client.String(), counted.follow(e.Server.KV())
	case err := <-e.Err():
		return "", err
	case <-e.Server.StopNotify():
		return "", fmt.Errorf("stopped before it was ready: see %s", c.LogOutputs[0])
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}
