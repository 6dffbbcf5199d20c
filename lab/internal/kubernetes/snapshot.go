package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"

	clientv3 "go.etcd.io/etcd/client/v3"
	etcdutl "go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
)

// Snapshot reads the database of the etcd that runs in a directory, from any process: the file, and then its
// SHA-256, which etcd adds.
func Snapshot(ctx context.Context, dir string) (io.ReadCloser, error) {
	path := socket(dir)
	probe, err := net.Dial("unix", path) // the client would retry for ever
	if err != nil {
		return nil, err
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"unix://" + path}, Logger: zap.NewNop()})
	if err := errors.Join(err, probe.Close()); err != nil {
		return nil, err
	}
	stream, err := client.Snapshot(ctx)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return &snapshot{ReadCloser: stream, client: client}, nil
}

type snapshot struct {
	io.ReadCloser
	client io.Closer
}

func (s *snapshot) Close() error { return errors.Join(s.ReadCloser.Close(), s.client.Close()) }

// RemoveEtcd deletes the data of the etcd that ran in a directory.
func RemoveEtcd(dir string) error { return os.RemoveAll(dataDir(dir)) }

// Restore makes the data of a new etcd of one member from a snapshot, as Talos does: with the texts of its
// errors, and without a higher revision. A damaged snapshot may end the process, as it ends machined.
func Restore(dir, path string, skipHashCheck bool) error {
	manager := etcdutl.NewV3(zap.NewNop())
	if _, err := manager.Status(path); err != nil {
		return fmt.Errorf("error verifying snapshot: %w", err)
	}
	c := embed.NewConfig()
	err := manager.Restore(etcdutl.RestoreConfig{
		SnapshotPath: path, Name: c.Name, OutputDataDir: dataDir(dir), PeerURLs: []string{advertised},
		InitialCluster: c.Name + "=" + advertised, SkipHashCheck: skipHashCheck,
	})
	if err != nil {
		return fmt.Errorf("error recovering from the snapshot: %w", err)
	}
	return nil
}

// DatabaseSize is the size in bytes of the database of the etcd in a directory; 0 if there is none.
func DatabaseSize(dir string) int64 {
	info, err := os.Stat(filepath.Join(dataDir(dir), "member", "snap", "db"))
	if err != nil {
		return 0
	}
	return info.Size()
}

// HasEtcd reports whether an etcd has left data in a directory.
func HasEtcd(dir string) bool {
	entries, err := os.ReadDir(dataDir(dir))
	return err == nil && len(entries) > 0
}
