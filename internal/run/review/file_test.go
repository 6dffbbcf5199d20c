package review

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ephemeral-castle/castle/internal/state"
)

func writeSaved(t *testing.T) (path, digest string) {
	t.Helper()
	facts := new(state.Fingerprint)
	facts.Add("variable token", []byte("hunter2-is-long"))
	path = filepath.Join(t.TempDir(), "blue"+Extension)
	p := &SavedPlan{
		Path: path, Cluster: "blue/proxmox", Castle: "1.2.3", Facts: facts,
		Stages: []SavedStage{
			{Name: "seed", State: "changes", Facts: facts,
				Changes: []Change{{Address: "a.b", Action: "create"}},
				Saved:   []byte("of Terraform's")},
			{Name: "pool", State: "waits", Facts: facts},
		},
	}
	if err := p.Write(); err != nil {
		t.Fatal(err)
	}
	return path, p.Digest
}

func TestReadSavedPlanReturnsTheWrittenPlan(t *testing.T) {
	path, digest := writeSaved(t)
	p, err := ReadSavedPlan(path)
	if err != nil {
		t.Fatal(err)
	}
	seed, pool := p.Stage("seed"), p.Stage("pool")
	if p.Digest != digest || p.Cluster != "blue/proxmox" || string(seed.Saved) != "of Terraform's" ||
		pool.Saved != nil || p.Stage("other") != nil {
		t.Errorf("read %+v with digest %s, want %s", p, p.Digest, digest)
	}
	if changed := pool.Facts.Changed(seed.Facts); len(changed) > 0 || len(pool.Facts.Changed(nil)) != 1 {
		t.Errorf("facts differ: %v", changed)
	}
}

func TestReadSavedPlanRefusesADamagedFile(t *testing.T) {
	path, _ := writeSaved(t)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	broken := map[string][]byte{"empty": {}, "text": []byte("a plan"),
		"altered": bytes.Replace(whole, []byte("of Terraform's"), []byte("of somebody's!"), 1)}
	for n := 1; n < len(whole); n += 13 {
		broken["cut short"] = whole[:n]
		for name, data := range broken {
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := ReadSavedPlan(path); err == nil ||
				!strings.Contains(err.Error(), "not a plan saved by `castle plan --plan-out`, or damaged: ") {
				t.Fatalf("%s to %d bytes: %v", name, n, err)
			}
		}
	}
}

func TestAPlanFileIsPrivate(t *testing.T) {
	path, _ := writeSaved(t)
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v %v", info.Mode(), err)
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadSavedPlan(path); err == nil || !strings.Contains(err.Error(), "chmod 600 "+path) {
		t.Errorf("got %v", err)
	}
}
