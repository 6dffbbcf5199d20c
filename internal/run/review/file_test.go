package review

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"

	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/state/commits"
)

func writeSaved(t *testing.T, e commits.Encryption) (path, digest string) {
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
	if err := p.Write(e); err != nil {
		t.Fatal(err)
	}
	return path, p.Digest
}

func TestReadSavedPlanReturnsTheWrittenPlan(t *testing.T) {
	path, digest := writeSaved(t, commits.Encryption{})
	p, err := ReadSavedPlan(path, commits.Encryption{})
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
	path, _ := writeSaved(t, commits.Encryption{})
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
			if _, err := ReadSavedPlan(path, commits.Encryption{}); err == nil ||
				!strings.Contains(err.Error(), "not a plan saved by `castle plan --plan-out`, or damaged: ") {
				t.Fatalf("%s to %d bytes: %v", name, n, err)
			}
		}
	}
}

func TestAPlanFileIsPrivate(t *testing.T) {
	path, _ := writeSaved(t, commits.Encryption{})
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v %v", info.Mode(), err)
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	_, err = ReadSavedPlan(path, commits.Encryption{})
	if err == nil || !strings.Contains(err.Error(), "chmod 600 "+path) {
		t.Errorf("got %v", err)
	}
}

// An encrypted plan may pass through the hands of others.
func TestAnEncryptedPlanMayBePublic(t *testing.T) {
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	e := commits.Encryption{Recipients: []string{identity.Recipient().String()}}
	path, digest := writeSaved(t, e)
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil || bytes.Contains(data, []byte("of Terraform's")) || bytes.Contains(data, []byte("blue")) {
		t.Fatalf("%v: %q", err, data)
	}
	if _, err := ReadSavedPlan(path, e); err == nil || !strings.Contains(err.Error(),
		"there is no identity\n  set CASTLE_AGE_IDENTITY") {
		t.Errorf("without an identity: %v", err)
	}
	e.Identities = identity.String()
	p, err := ReadSavedPlan(path, e)
	if err != nil || p.Digest != digest || string(p.Stage("seed").Saved) != "of Terraform's" {
		t.Errorf("read %+v: %v", p, err)
	}
	data[len(data)-1] ^= 1
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadSavedPlan(path, e); err == nil || !strings.Contains(err.Error(), "or damaged: ") {
		t.Errorf("damaged: %v", err)
	}
}
