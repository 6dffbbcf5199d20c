package datacenter

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"testing"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	talosapi "github.com/siderolabs/talos/pkg/machinery/client"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
)

// through connects as the administrator of a cluster to one of its machines.
func through(t *testing.T, talosconfig []byte, address string) []talosapi.OptionFunc {
	t.Helper()
	config, err := clientconfig.FromBytes(talosconfig)
	if err != nil {
		t.Fatal(err)
	}
	return []talosapi.OptionFunc{talosapi.WithConfig(config), talosapi.WithEndpoints(address)}
}

// snapshotOf reads a snapshot to its end.
func snapshotOf(t *testing.T, options []talosapi.OptionFunc) (data []byte) {
	t.Helper()
	call(t, func(ctx context.Context, c *talosapi.Client) error {
		stream, err := c.EtcdSnapshot(ctx, &machineapi.EtcdSnapshotRequest{})
		if err != nil {
			return err
		}
		data, err = io.ReadAll(stream)
		return errors.Join(err, stream.Close())
	}, options...)
	return data
}

// complete is the check of a snapshot by its own hash.
func complete(data []byte) error {
	if len(data)%512 != sha256.Size {
		return fmt.Errorf("%d bytes have no hash", len(data))
	}
	body, want := data[:len(data)-sha256.Size], data[len(data)-sha256.Size:]
	if hash := sha256.Sum256(body); !bytes.Equal(hash[:], want) {
		return errors.New("another hash")
	}
	return nil
}

func TestASnapshotIsTheOneOfARealEtcd(t *testing.T) {
	const address = "127.0.7.101"
	d, log := start(t, Config{})
	talosconfig := raise(t, d, "127.0.7.100", address)
	log.await(t, "kubernetes: answers at", 2)
	data := snapshotOf(t, through(t, talosconfig, address))
	if err := complete(data); err != nil || !bytes.Contains(data, []byte("/registry/namespaces/default")) {
		t.Errorf("%d bytes: %v", len(data), err)
	}
}
