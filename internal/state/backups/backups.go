// Package backups keeps backups of etcd in the store of a cluster's state, or in its state directory. They
// stand below a prefix of their own, beside the state and not in it, so that they outlive a destroy.
//
//	<cluster>/<platform>/backups/<id>/  0000 0001 …  manifest
//
// A snapshot is stored in parts, each encrypted as the state is. The manifest, which is written last, is the
// backup: it names each part by the hash of what is stored, and is signed like a commit. A folder without
// manifest is what a killed castle left, or one that works right now.
package backups

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/ephemeral-castle/castle/internal/naming"
	"github.com/ephemeral-castle/castle/internal/state/commits"
	"github.com/ephemeral-castle/castle/internal/store"
)

const (
	// partSize is what a store takes at once, within its time limit also over a slow line.
	partSize = 4 << 20

	folder   = "backups"
	manifest = "manifest"
	purpose  = "castle: a backup of etcd"

	// leftOver is the age at which a backup without manifest belongs to a castle that was killed.
	leftOver = 24 * time.Hour
)

// Backup is what the manifest of a backup says.
type Backup struct {
	ID      string    `json:"id"`
	Cluster string    `json:"cluster"` // blue/proxmox
	Time    time.Time `json:"time"`    // when the snapshot was begun
	By      string    `json:"by"`      // user@host
	Castle  string    `json:"castle"`  // its version
	// Life identifies the cluster: one that is created anew has another one. Empty: not known.
	Life string `json:"life"`

	Bytes    int64  `json:"bytes"`    // of the snapshot
	Revision int64  `json:"revision"` // of etcd's newest change in it
	Member   string `json:"member"`   // the address of the control plane that it comes from
	// Keys are fingerprints of the cluster's keys, by name. With other ones, a cluster cannot read it.
	Keys       map[string]string `json:"keys"`
	Talos      string            `json:"talos"`
	Kubernetes string            `json:"kubernetes"`
	// Machines are the names of the machines that castle had configured.
	Machines []string `json:"machines"`
	// Instances identify those machines then, by the address of what configures each. One that was made anew
	// since has another instance, and other disks.
	Instances map[string]string `json:"instances,omitempty"`
	// Serials are those of the stages' Terraform states then, by stage.
	Serials map[string]uint64 `json:"serials"`

	Parts []string `json:"parts"` // the SHA-256 of each, as it is stored
}

// Shelf holds the backups of one cluster.
type Shelf struct {
	store      store.Store
	prefix     string
	encryption commits.Encryption
}

// Open makes no request.
func Open(s store.Store, cluster string, e commits.Encryption) *Shelf {
	return &Shelf{store: s, prefix: path.Join(cluster, folder) + "/", encryption: e}
}

// timeOfID is the layout of the time that an id begins with, so that ids sort by age.
const timeOfID = "20060102-150405"

// Save stores a snapshot, and returns b with its id and its parts.
func (s *Shelf) Save(ctx context.Context, b Backup, snapshot io.Reader) (*Backup, error) {
	b.ID = b.Time.UTC().Format(timeOfID) + "-" + strings.ToLower(rand.Text()[:4])
	part := make([]byte, partSize)
	for {
		n, err := io.ReadFull(snapshot, part)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, err
		}
		sealed, err := s.encryption.Seal(s.store.URL(), part[:n])
		if err != nil {
			return nil, err
		}
		if err := s.create(ctx, s.part(b.ID, len(b.Parts)), sealed); err != nil {
			return nil, err
		}
		b.Parts = append(b.Parts, digest(sealed))
	}
	text, err := json.Marshal(b)
	if err != nil {
		return nil, err
	}
	sealed, err := s.encryption.SealSigned(s.store.URL(), purpose, text)
	if err != nil {
		return nil, err
	}
	return &b, s.create(ctx, s.key(b.ID, manifest), sealed)
}

// create stores a value under a key of its own: it may be there from an attempt whose answer was lost.
func (s *Shelf) create(ctx context.Context, key string, value []byte) error {
	err := s.store.Create(ctx, key, value)
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	there, unread := s.store.Read(ctx, key)
	if unread == nil && digest(there) == digest(value) {
		return nil
	}
	return errors.Join(err, unread)
}

func (s *Shelf) key(id, name string) string { return s.prefix + id + "/" + name }

func (s *Shelf) part(id string, i int) string { return s.key(id, fmt.Sprintf("%04d", i)) }

func digest(data []byte) string { return fmt.Sprintf("%x", sha256.Sum256(data)) }

// IDs returns the ids of the complete backups, the newest first.
func (s *Shelf) IDs(ctx context.Context) ([]string, error) {
	all, err := s.keys(ctx)
	return slices.DeleteFunc(newestFirst(all), func(id string) bool {
		return !slices.Contains(all[id], s.key(id, manifest))
	}), err
}

// keys returns the keys of each backup, by id.
func (s *Shelf) keys(ctx context.Context) (map[string][]string, error) {
	keys, err := s.store.List(ctx, s.prefix)
	all := map[string][]string{}
	for _, key := range keys {
		if id, _, _ := strings.Cut(strings.TrimPrefix(key, s.prefix), "/"); naming.Suits(id) {
			all[id] = append(all[id], key)
		}
	}
	return all, err
}

func newestFirst(all map[string][]string) []string {
	return slices.SortedFunc(maps.Keys(all), func(a, b string) int { return strings.Compare(b, a) })
}

// Newest returns the newest backup, nil if there is none.
func (s *Shelf) Newest(ctx context.Context) (*Backup, error) {
	ids, err := s.IDs(ctx)
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	return s.Find(ctx, ids[0])
}

// Find reads the manifest of a backup. The error matches fs.ErrNotExist if there is none with this id.
func (s *Shelf) Find(ctx context.Context, id string) (*Backup, error) {
	if !naming.Suits(id) {
		return nil, fmt.Errorf("backup %q: %w", id, fs.ErrNotExist) // no key has such a part
	}
	sealed, err := s.store.Read(ctx, s.key(id, manifest))
	if err != nil {
		return nil, fmt.Errorf("backup %s: %w", id, err)
	}
	text, err := s.encryption.UnsealSigned(s.store.URL()+" "+s.key(id, manifest), purpose, sealed)
	if err != nil {
		return nil, err
	}
	b := &Backup{}
	if err := json.Unmarshal(text, b); err != nil {
		return nil, fmt.Errorf("backup %s: its manifest is damaged: %w", id, err)
	}
	if b.ID != id || path.Join(b.Cluster, folder)+"/" != s.prefix {
		return nil, fmt.Errorf("backup %s: its manifest is that of backup %q of %q: somebody has moved it",
			id, b.ID, b.Cluster)
	}
	return b, nil
}

// Read writes the snapshot of a backup to w. It is an error if a stored part is not the one that the manifest
// names: w then holds a beginning of the snapshot.
func (s *Shelf) Read(ctx context.Context, b *Backup, w io.Writer) error {
	for i, want := range b.Parts {
		sealed, err := s.store.Read(ctx, s.part(b.ID, i))
		if err == nil && digest(sealed) != want {
			err = errors.New("is not what was stored")
		}
		if err == nil {
			sealed, err = s.encryption.Unseal(s.store.URL(), sealed)
		}
		if err == nil {
			_, err = w.Write(sealed)
		}
		if err != nil {
			return fmt.Errorf("backup %s: part %d of %d: %w", b.ID, i+1, len(b.Parts), err)
		}
	}
	return nil
}

// Prune deletes all complete backups but the newest, and what killed castles have left. The manifest goes
// first, so that no half of a backup is taken for one.
func (s *Shelf) Prune(ctx context.Context, keep int) (deleted []string, err error) {
	all, err := s.keys(ctx)
	if err != nil {
		return nil, err
	}
	kept := 0
	for _, id := range newestFirst(all) {
		complete := slices.Contains(all[id], s.key(id, manifest))
		if complete {
			kept++
		}
		if complete && kept <= keep || !complete && !isLeftOver(id) {
			continue
		}
		for _, key := range slices.Backward(all[id]) { // "manifest" sorts behind the parts
			if err := s.store.Delete(ctx, key); err != nil {
				return deleted, err
			}
		}
		if complete {
			deleted = append(deleted, id)
		}
	}
	return deleted, nil
}

// isLeftOver reports whether a backup was begun so long ago that nobody works on it any more.
func isLeftOver(id string) bool {
	at, err := time.Parse(timeOfID, id[:min(len(id), len(timeOfID))])
	return err == nil && time.Since(at) > leftOver
}
