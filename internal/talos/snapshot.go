package talos

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
)

// snapshotBound is how long a snapshot of 1 GiB may take: at 2 MB/s.
const snapshotBound = 10 * time.Minute

// EtcdMember is what a machine's own member of etcd tells about itself.
type EtcdMember struct {
	Size    int64 // of its database, in bytes
	Leads   bool
	Leader  bool // it follows a leader, or leads: there is a quorum
	Learner bool
}

// EtcdMember asks the machine's member. It is an error if etcd does not run there.
func (n *Node) EtcdMember(ctx context.Context) (m EtcdMember, err error) {
	err = n.call(ctx, attempt, "read etcd", func(ctx context.Context, c *client.Client) (err error) {
		m, err = readMember(ctx, c)
		return err
	})
	return m, err
}

func readMember(ctx context.Context, c *client.Client) (EtcdMember, error) {
	answer, err := first(c.EtcdStatus(ctx))
	s := answer.GetMemberStatus()
	return EtcdMember{Size: s.GetDbSize(), Learner: s.GetIsLearner(), Leader: s.GetLeader() != 0,
		Leads: s.GetLeader() != 0 && s.GetLeader() == s.GetMemberId()}, err
}

// Snapshot writes a snapshot of etcd as the machine's member has it. It is not verified: the stream may end
// early without an error. More than most bytes are an error.
func (n *Node) Snapshot(ctx context.Context, w io.Writer, most int64) error {
	return n.call(ctx, snapshotBound, "read etcd", func(ctx context.Context, c *client.Client) error {
		stream, err := c.EtcdSnapshot(ctx, &machineapi.EtcdSnapshotRequest{})
		if err != nil {
			return err
		}
		defer stream.Close() //nolint:errcheck // it was read to its end, or that failed
		written, err := io.Copy(w, io.LimitReader(stream, most+1))
		if err == nil && written > most {
			err = fmt.Errorf("the snapshot of etcd is larger than %d bytes", most)
		}
		return err
	})
}

// keyPaths are the keys in a control plane's configuration that etcd's content depends on: the authorities
// that the certificates of all parts come from, the key that signs ServiceAccount tokens, and the one that
// encrypts Secrets.
var keyPaths = map[string]string{
	"talos_ca":           "machine.ca.crt",
	"kubernetes_ca":      "cluster.ca.crt",
	"etcd_ca":            "cluster.etcd.ca.crt",
	"aggregator_ca":      "cluster.aggregatorCA.crt",
	"serviceaccount_key": "cluster.serviceAccount.key",
	"secretbox_key":      "cluster.secretboxEncryptionSecret",
	"aescbc_key":         "cluster.aescbcEncryptionSecret",
}

// KeyFingerprints returns the SHA-256 of each key in a control plane's configuration, by the key's name. A
// key that the configuration does not have has none.
func KeyFingerprints(configuration []byte) (map[string]string, error) {
	documents, err := readDocuments(configuration)
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	for name, path := range keyPaths {
		if key := stringAt(documents[""], path); key != "" {
			all[name] = fmt.Sprintf("%x", sha256.Sum256([]byte(key)))
		}
	}
	return all, nil
}
