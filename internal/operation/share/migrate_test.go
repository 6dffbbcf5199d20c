package share

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/state/commits"
	"github.com/ephemeral-castle/castle/internal/state/commits/commitstest"
	"github.com/ephemeral-castle/castle/internal/state/workingcopy"
)

// files are those of the state that the tests migrate.
var files = map[string]string{
	"stages/seed/terraform.tfstate": `{"version":4,"serial":3,"lineage":"l"}`,
	"stages/seed/record.json":       `{"name":"seed"}`,
	"runs/1/journal.jsonl":          "",
	"kubeconfig":                    "secret",
}

// newCluster returns a cluster with a state directory of its own that holds the files.
func newCluster(t *testing.T) *cluster.Cluster {
	t.Helper()
	dir, err := state.Open(t.TempDir(), "blue", "proxmox")
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		path := filepath.Join(dir.Path(), name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return &cluster.Cluster{
		Config: &config.Cluster{Name: "blue", Platform: "proxmox", Runs: 3}, Dir: dir,
		Options: cluster.Options{Cluster: "blue"},
	}
}

// newMigration returns a migration whose stores are those, by URL.
func newMigration(c *cluster.Cluster, stores map[string]*commitstest.Memory) *migration {
	return &migration{
		c: c, notice: func(string) {}, writer: commits.Writer{Host: "laptop", User: "ada"},
		open: func(_ context.Context, url string) (*commits.Log, error) {
			return commits.Open(stores[url].Share(), c.Name(), commits.Encryption{})
		},
	}
}

// check reports a place that is valid beside another one, and a valid store that lacks a file.
func check(t *testing.T, c *cluster.Cluster, s *commitstest.Memory) (stored bool) {
	t.Helper()
	place, err := workingcopy.Where(c.Dir)
	if err != nil {
		t.Fatal(err)
	}
	log, err := commits.Open(s.Share(), c.Name(), commits.Encryption{})
	if err != nil {
		t.Fatal(err)
	}
	head, err := log.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	stored = head != nil && head.Moved == ""
	if stored && place.Own {
		t.Fatal("both the directory and the store are valid")
	}
	if !stored {
		return false
	}
	contents, err := log.Download(t.Context(), head)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		if !bytes.Equal(contents[name], []byte(content)) {
			t.Errorf("%s is %q in the store", name, contents[name])
		}
	}
	return true
}

func TestMigrationIsCompletedAfterAnInterruptAnywhere(t *testing.T) {
	const url = "memory://a"
	for _, answerLost := range []bool{false, true} {
		for n := 1; ; n++ {
			c, s := newCluster(t), commitstest.New(url)
			requests, interrupted := 0, errors.New("interrupted")
			fail := func() error {
				if requests++; requests >= n {
					return interrupted
				}
				return nil
			}
			failing := s.Share()
			if answerLost {
				failing.SetAfter(func(string, string) error { return fail() })
			} else {
				failing.SetBefore(func(context.Context, string, string) error { return fail() })
			}
			m := newMigration(c, nil)
			m.open = func(context.Context, string) (*commits.Log, error) {
				return commits.Open(failing, c.Name(), commits.Encryption{})
			}
			_, err := m.migrate(t.Context(), url)
			if err == nil {
				if n < 5 {
					t.Fatalf("a migration of %d requests", n-1)
				}
				break
			}
			t.Run(fmt.Sprintf("request %d, answer lost: %t", n, answerLost), func(t *testing.T) {
				if !errors.Is(err, interrupted) {
					t.Fatal(err)
				}
				check(t, c, s)
				again := newMigration(c, map[string]*commitstest.Memory{url: s})
				if _, err := again.migrate(t.Context(), url); err != nil {
					t.Fatal(err)
				}
				if !check(t, c, s) {
					t.Error("the store is not valid after the second migration")
				}
			})
		}
	}
}

func TestMigrationReportsWhatTheStoreChanged(t *testing.T) {
	const url = "memory://a"
	c, s := newCluster(t), commitstest.New(url)
	s.SetAfter(func(op, key string) error {
		if op == "create" && filepath.Base(filepath.Dir(key)) == "objects" {
			s.Replace(key, []byte("other"))
		}
		return nil
	})
	m := newMigration(c, nil)
	m.open = func(context.Context, string) (*commits.Log, error) {
		return commits.Open(s, c.Name(), commits.Encryption{})
	}
	_, err := m.migrate(t.Context(), url)
	if !errors.As(err, new(*commits.DamagedError)) {
		t.Errorf("got %v", err)
	}
	if place, err := workingcopy.Where(c.Dir); err != nil || !place.Own {
		t.Errorf("the directory is not valid any more: %+v, %v", place, err)
	}
}
