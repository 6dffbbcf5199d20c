package list

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/fleet"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/state/commits"
	"github.com/ephemeral-castle/castle/internal/state/commits/commitstest"
	"github.com/ephemeral-castle/castle/internal/state/workingcopy"
)

const thousand = 1000

// aThousand returns a store with as many clusters, which answers after 20 ms, as a store of another machine
// that has no working copy yet.
func aThousand(b *testing.B) (*commitstest.Memory, *cluster.StateStore) {
	b.Helper()
	m := commitstest.New("memory://store")
	shared := func(s *commitstest.Memory) *cluster.StateStore {
		return &cluster.StateStore{Store: s, Writer: commits.Writer{Host: "a", User: "user", Castle: "1"}}
	}
	root := b.TempDir()
	for i := range thousand {
		dir, err := state.Open(root, fmt.Sprintf("c%04d", i), "proxmox")
		if err != nil {
			b.Fatal(err)
		}
		for name, text := range map[string]string{"layout": "1\n", "stages/pool/terraform.tfstate": "{}"} {
			path := filepath.Join(dir.Path(), name)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				b.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				b.Fatal(err)
			}
		}
		log, err := shared(m).Log(dir.Cluster())
		if err == nil {
			_, err = workingcopy.Import(b.Context(), dir, log, nil, shared(m).Writer, "a test", "")
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	far := m.Share()
	far.SetBefore(func(ctx context.Context, _, _ string) error {
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
		return ctx.Err()
	})
	return far, shared(far)
}

func listed(b *testing.B, s *cluster.StateStore, root string) {
	b.Helper()
	all, err := in(b.Context(), s, root, "", fleet.Selector{})
	if err != nil || len(all) != thousand {
		b.Fatal(len(all), err)
	}
}

func BenchmarkAThousandClustersInAStore(b *testing.B) {
	far, s := aThousand(b)
	root := b.TempDir()
	listed(b, s, root)
	far.Requests()
	for b.Loop() {
		listed(b, s, root)
	}
	b.ReportMetric(float64(len(far.Requests()))/float64(b.N)/thousand, "requests/cluster")
}

// The first list of a machine also writes the working copies.
func BenchmarkTheFirstListOfAThousandClusters(b *testing.B) {
	_, s := aThousand(b)
	for b.Loop() {
		listed(b, s, b.TempDir())
	}
}
