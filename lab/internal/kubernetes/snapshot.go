package kubernetes

import (
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// socket is where etcd listens, in the directory of a control plane.
func socket(dir string) string { return filepath.Join(dir, "etcd.sock") }

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
