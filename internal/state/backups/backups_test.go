package backups

import (
	"bytes"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"filippo.io/age"

	"github.com/ephemeral-castle/castle/internal/state/commits"
	"github.com/ephemeral-castle/castle/internal/state/commits/commitstest"
	"github.com/ephemeral-castle/castle/internal/state/keys"
)

const cluster = "blue/proxmox"

// holder returns an encryption whose only holder has a new identity.
func holder(t *testing.T) commits.Encryption {
	t.Helper()
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	all, err := keys.Parse(identity.String())
	if err != nil {
		t.Fatal(err)
	}
	return commits.Encryption{Recipients: []string{all[0].Recipient}, Signers: []string{all[0].Signer},
		Identities: identity.String()}
}

func save(t *testing.T, s *Shelf, content []byte) *Backup {
	t.Helper()
	b, err := s.Save(t.Context(), Backup{Cluster: cluster, Time: time.Now(), Bytes: int64(len(content)),
		Keys: map[string]string{"etcd's CA": "12"}}, bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestABackupIsReadAsItWasStored(t *testing.T) {
	content := bytes.Repeat([]byte("an object of Kubernetes "), partSize/8) // three parts
	for name, e := range map[string]commits.Encryption{"in clear": {}, "encrypted": holder(t)} {
		t.Run(name, func(t *testing.T) {
			memory := commitstest.New("memory://store")
			s := Open(memory, cluster, e)
			saved := save(t, s, content)
			b, err := s.Newest(t.Context())
			if err != nil || b.ID != saved.ID || len(b.Parts) != 3 {
				t.Fatalf("the newest is %+v, %v", b, err)
			}
			var read bytes.Buffer
			if err := s.Read(t.Context(), b, &read); err != nil || !bytes.Equal(read.Bytes(), content) {
				t.Errorf("read %d bytes, %v", read.Len(), err)
			}
			all, err := memory.List(t.Context(), "")
			if err != nil {
				t.Fatal(err)
			}
			for _, key := range all {
				value, err := memory.Read(t.Context(), key)
				if err != nil || name == "encrypted" && !commits.IsSealed(value) {
					t.Errorf("%s is not encrypted: %v", key, err)
				}
			}
		})
	}
}

// Somebody who can only write to the store forges no backup, and changes none.
func TestWhoIsNoSignerIsNotBelieved(t *testing.T) {
	memory, e := commitstest.New("memory://store"), holder(t)
	s := Open(memory, cluster, e)
	b := save(t, s, []byte("good"))
	good, err := memory.Read(t.Context(), s.key(b.ID, manifest))
	if err != nil {
		t.Fatal(err)
	}
	other := holder(t)
	other.Recipients = append(other.Recipients, e.Recipients...) // they are public
	forged := save(t, Open(memory, cluster, other), []byte("evil"))
	if _, err := s.Find(t.Context(), forged.ID); !errors.As(err, new(*commits.UntrustedError)) {
		t.Errorf("signed by somebody else: %v", err)
	}
	clear := save(t, Open(memory, cluster, commits.Encryption{}), []byte("evil"))
	if _, err := s.Find(t.Context(), clear.ID); !errors.As(err, new(*commits.UntrustedError)) {
		t.Errorf("not signed: %v", err)
	}
	memory.Replace(s.key(clear.ID, manifest), good)
	if _, err := s.Find(t.Context(), clear.ID); err == nil || !strings.Contains(err.Error(), "moved") {
		t.Errorf("another one's manifest: %v", err)
	}
	memory.Replace(s.part(b.ID, 0), []byte("evil"))
	if err := s.Read(t.Context(), b, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(),
		"part 1 of 1: is not what was stored") {
		t.Errorf("another part: %v", err)
	}
}

func TestTheNewestAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := commitstest.New("memory://store")
		s := Open(memory, cluster, commits.Encryption{})
		killed := s.key(time.Now().UTC().Format(timeOfID)+"-dead", "0000")
		if err := memory.Create(t.Context(), killed, []byte("half")); err != nil {
			t.Fatal(err)
		}
		var saved []string
		for range 4 {
			time.Sleep(time.Hour)
			saved = append(saved, save(t, s, []byte("x")).ID)
		}
		deleted, err := s.Prune(t.Context(), 2)
		if err != nil || !slices.Equal(deleted, []string{saved[1], saved[0]}) {
			t.Errorf("deleted %v of %v, %v", deleted, saved, err)
		}
		if ids, err := s.IDs(t.Context()); err != nil || !slices.Equal(ids, []string{saved[3], saved[2]}) {
			t.Errorf("kept %v, %v", ids, err)
		}
		if _, err := memory.Read(t.Context(), killed); err != nil {
			t.Errorf("a castle that may still work has lost a part: %v", err)
		}
		time.Sleep(leftOver)
		if _, err := s.Prune(t.Context(), 2); err != nil {
			t.Fatal(err)
		}
		if _, err := memory.Read(t.Context(), killed); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("what a killed castle has left is there after a day: %v", err)
		}
	})
}

func TestAnIDIsNoPath(t *testing.T) {
	s := Open(commitstest.New("memory://store"), cluster, commits.Encryption{})
	for _, id := range []string{"", "..", "../../log", "A"} {
		if _, err := s.Find(t.Context(), id); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%q: %v", id, err)
		}
	}
}
