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

// The store answers after 20 ms. The first list also writes the working copies, and is not measured.
func BenchmarkAThousandClustersInAStore(b *testing.B) {
	const clusters = 1000
	m := commitstest.New("memory://store")
	shared := func(s *commitstest.Memory) *cluster.StateStore {
		return &cluster.StateStore{Store: s, Writer: commits.Writer{Host: "a", User: "user", Castle: "1"}}
	}
	root := b.TempDir()
	for i := range clusters {
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
	elsewhere := b.TempDir()
	if _, err := in(b.Context(), shared(far), elsewhere, "", fleet.Selector{}); err != nil {
		b.Fatal(err)
	}
	far.Requests()
	for b.Loop() {
		all, err := in(b.Context(), shared(far), elsewhere, "", fleet.Selector{})
		if err != nil || len(all) != clusters {
			b.Fatal(len(all), err)
		}
	}
	b.ReportMetric(float64(len(far.Requests()))/float64(b.N)/clusters, "requests/cluster")
}
