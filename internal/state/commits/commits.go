// Package commits is the log of one cluster's state in a store. A commit names all files of the state
// directory, and the lock; it exists if its number could be created, as in the log of Delta Lake. So of two
// machines that commit at once one succeeds, the other one reads the winner's commit and sees why, and a
// holder that has lost the lock commits nothing more.
//
//	<cluster>/<platform>/log/<sequence>   a Commit as JSON, compressed
//	<cluster>/<platform>/objects/<name>   the files that a commit changed, one after the other, compressed
//	                                      and encrypted
//	clusters/<cluster>/<platform>         exists once a commit of the log has files
//
// The head is the highest number, and only a list tells it: Prune removes lower ones. So a number can be
// free that was taken before. Append therefore lists once more if its knowledge of the head is old, and
// Prune keeps the commits by which a lock was taken over, whose numbers the former holder would use.
package commits

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ephemeral-castle/castle/internal/naming"
	"github.com/ephemeral-castle/castle/internal/state/keys"
	"github.com/ephemeral-castle/castle/internal/store"
)

// Commit is one entry of the log: the whole state directory at one moment.
type Commit struct {
	Format   int       `json:"format"`             // of this value; 1
	Sequence int64     `json:"sequence"`           // 1 is the first
	ID       string    `json:"id"`                 // random: after a lost answer its writer recognises it
	Cluster  string    `json:"cluster"`            // blue/proxmox: another log refuses a copy
	Previous string    `json:"previous,omitempty"` // the digest of the commit before
	Time     time.Time `json:"time"`               // by the writer's clock
	Run      string    `json:"run,omitempty"`
	Host     string    `json:"host"`
	User     string    `json:"user"`
	Castle   string    `json:"castle"` // the writer's version
	What     string    `json:"what"`   // what was committed: "before platform/machines is applied"
	// Files are the files of the state directory, by slash-separated path.
	Files map[string]File `json:"files"`
	Lock  *Lock           `json:"lock,omitempty"` // nil: nobody holds it
	// Over is the run whose lock this commit took over or removed.
	Over string `json:"over,omitempty"`
	// Recipients are the age keys for which the writer encrypted.
	Recipients []string `json:"recipients,omitempty"`
	// Signer is the public key of the writer; empty in a log without signers.
	Signer string `json:"signer,omitempty"`
	// Moved is where the state lives instead: the URL of another store, or host:directory. Checkout and Take
	// refuse such a head. Only a migration to this log appends after it: its copy is marked as moved to the
	// source until that is marked as moved to this log.
	Moved string `json:"moved,omitempty"`
	// Digest is the SHA-256 of the commit as it was signed, for the next one. It is no part of that.
	Digest string `json:"digest,omitempty"`
	// Untrusted is why no signer vouches for a commit that List has returned: an *UntrustedError, or nil.
	Untrusted error `json:"-"`
}

// File is where the content of a file lies.
type File struct {
	Object string      `json:"object"`
	Offset int64       `json:"offset"` // bytes, in the decrypted object
	Size   int64       `json:"size"`   // bytes
	Mode   fs.FileMode `json:"mode"`
}

// Lock is the cluster's lock. Each commit of the holder is a sign of life.
type Lock struct {
	Run   string        `json:"run"`
	Host  string        `json:"host"`
	Boot  string        `json:"boot"` // identifies the machine since its start; empty if unknown
	PID   int           `json:"pid"`
	Start uint64        `json:"start"` // of the process, in ticks since boot
	Since time.Time     `json:"since"`
	Lasts time.Duration `json:"lasts"` // without a sign of life; then another run may take it over
}

// LockTime is how long a lock lasts without a sign of life, unless CASTLE_STATE_LOCK_TIME says otherwise.
const LockTime = 60 * time.Second

// Writer is who commits.
type Writer struct {
	Run, Host, User, Castle string
}

// ConflictError reports that another commit has the number: Head is the newest one.
type ConflictError struct{ Head *Commit }

func (e *ConflictError) Error() string {
	return fmt.Sprintf("commit %d was made by %s on %s", e.Head.Sequence, e.Head.Run, e.Head.Host)
}

// Log is the log of one cluster. Its methods are safe for concurrent use, but one caller at a time appends.
type Log struct {
	store   store.Store
	cluster string // blue/proxmox
	cipher  *cipher
	suffix  string // of the names of the objects that this value writes
	least   int64  // the number that Head expects

	tried sync.Map // IDs of commits whose fate is unknown: the answer was lost
	mine  sync.Map // sequence → *Commit that this value appended, as brief returns it

	mu       sync.Mutex
	known    *Commit   // the newest that was read or written
	recalled *Commit   // the newest that another process of this machine has read
	asOf     time.Time // when it was the head
}

// Open returns the log of a cluster, such as "blue/proxmox". It makes no request. Recipients or identities
// that age cannot read are an error, and recipients without signers.
func Open(s store.Store, cluster string, e Encryption) (*Log, error) {
	c, err := newCipher(s.URL(), e)
	if err == nil && len(e.Recipients) > 0 && len(e.Signers) == 0 {
		err = keys.MissingSigners(e.Identities)
	}
	return &Log{store: s, cluster: cluster, cipher: c, suffix: random(4)}, err
}

// random returns so many random bytes in hexadecimal.
func random(bytes int) string {
	data := make([]byte, bytes)
	rand.Read(data) // never fails
	return fmt.Sprintf("%x", data)
}

const markers = "clusters"

// Clusters lists the clusters that have a log in the store: blue/proxmox. It leaves out names that
// break the rule; the error is a *naming.Error for each.
func Clusters(ctx context.Context, s store.Store) (all []string, err error) {
	keys, err := s.List(ctx, markers+"/")
	for _, key := range keys {
		// A cluster with the name "clusters" has longer keys.
		cluster := strings.TrimPrefix(key, markers+"/")
		if strings.Count(cluster, "/") != 1 {
			continue
		}
		wrong := naming.Check(key, "castle did not make this key; delete it", strings.Split(cluster, "/")...)
		if err = errors.Join(err, wrong); wrong == nil {
			all = append(all, cluster)
		}
	}
	return all, err
}

// URL returns the URL of the log's store, without anything secret.
func (l *Log) URL() string { return l.store.URL() }

// Cluster returns the name of the log's cluster: blue/proxmox.
func (l *Log) Cluster() string { return l.cluster }

func (l *Log) key(sequence int64) string { return l.prefix("log") + fmt.Sprintf("%012d", sequence) }

func (l *Log) prefix(kind string) string { return path.Join(l.cluster, kind) + "/" }

// sequences lists the numbers of all commits, ascending. It refuses an empty log beside a marker or objects:
// both come after the first commit.
func (l *Log) sequences(ctx context.Context) ([]int64, error) {
	all, err := l.numbers(ctx)
	if err != nil || len(all) > 0 {
		return all, err
	}
	there := path.Join(markers, l.cluster)
	if _, err = l.store.Read(ctx, there); errors.Is(err, fs.ErrNotExist) {
		var objects []string
		if objects, err = l.store.List(ctx, l.prefix("objects")); err != nil || len(objects) == 0 {
			return nil, err
		}
		there = l.prefix("objects")
	}
	if err != nil {
		return nil, err
	}
	if all, err = l.numbers(ctx); err == nil && len(all) == 0 { // the first run may just have begun
		err = fmt.Errorf("%s: %s has no commit, and the store has %s: somebody has deleted the commits\n"+
			"  restore %[4]s from a backup of the store. Without one: if a state directory has the right "+
			"state, remove store.json there and run `castle state migrate %[2]s --to URL` with another "+
			"place; if nothing of the cluster exists, delete %[5]s and %[2]s/ in the store", l.URL(),
			l.cluster, there, l.prefix("log"), path.Join(markers, l.cluster))
	}
	return all, err
}

func (l *Log) numbers(ctx context.Context) ([]int64, error) {
	keys, err := l.store.List(ctx, l.prefix("log"))
	var all []int64
	for _, key := range keys {
		if n, unread := strconv.ParseInt(path.Base(key), 10, 64); unread == nil && key == l.key(n) {
			all = append(all, n)
		}
	}
	slices.Sort(all)
	return all, err
}

// Append appends a commit after another one, which is nil for the first. It sets Sequence, ID and Time. The
// error is a *ConflictError if after is not the newest commit any more. After any other error the commit may
// exist all the same; the next Append after the same commit finds that out.
func (l *Log) Append(ctx context.Context, after *Commit, next Commit) (*Commit, error) {
	if err := l.cipher.check(); err != nil {
		return nil, err
	}
	next.Format, next.ID, next.Cluster = format, random(16), l.cluster
	next.Recipients = l.cipher.of.Recipients
	for {
		next.Sequence, next.Time = 1, time.Now().UTC()
		if after != nil {
			next.Sequence, next.Previous = after.Sequence+1, after.Digest
		}
		there, err := l.create(ctx, &next)
		switch {
		case err != nil:
			return nil, err
		case there == nil || there.ID == next.ID:
			return confirm(ctx, l, after, &next)
		}
		if _, tried := l.tried.Load(there.ID); !tried {
			return nil, l.conflict(ctx, there)
		}
		after = there // an earlier attempt, whose answer was lost
	}
}

// create creates a commit, or returns the one that has its number.
func (l *Log) create(ctx context.Context, c *Commit) (there *Commit, err error) {
	data, err := l.encode(c)
	if err != nil {
		return nil, err
	}
	l.tried.Store(c.ID, nil)
	err = l.store.Create(ctx, l.key(c.Sequence), data)
	if !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	there, err = l.Read(ctx, c.Sequence)
	if errors.Is(err, fs.ErrNotExist) { // removed meanwhile, so there is a newer one
		return &Commit{Sequence: c.Sequence}, nil
	}
	return there, err
}

// conflict returns the error for a number that is taken. A server can refuse the number a moment before it
// shows the commit that has it.
func (l *Log) conflict(ctx context.Context, there *Commit) error {
	for wait := 10 * time.Millisecond; ; wait *= 2 {
		head, err := l.Head(ctx)
		switch {
		case err == nil && head != nil && head.Sequence >= there.Sequence:
			return &ConflictError{head}
		case there.ID != "":
			return &ConflictError{there}
		case err != nil:
			return err
		case wait > time.Second:
			return fmt.Errorf("%s: %s: commit %d exists, and the store does not show it", l.URL(), l.cluster,
				there.Sequence)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(wait):
		}
	}
}

// fresh is how old the knowledge of the head may be for an Append that does not list afterwards. In less time
// no two runs can have taken the lock, so that the second one has removed commits of the first.
func fresh(c *Commit) time.Duration {
	if c.Lock != nil && c.Lock.Lasts > 0 {
		return c.Lock.Lasts / 2
	}
	return LockTime / 2
}

// confirm checks that a commit that was created is the head. Its number may have been free because the commit
// that had it was removed.
func confirm(ctx context.Context, l *Log, after, c *Commit) (*Commit, error) {
	l.mu.Lock()
	recent := after != nil && l.known != nil && l.known.ID == after.ID && Elapsed(l.asOf) < fresh(c)
	l.mu.Unlock()
	newest, asOf := c.Sequence, c.Time
	if !recent {
		asOf = time.Now()
		all, err := l.sequences(ctx)
		if err != nil { // its fate stays unknown
			return nil, err
		}
		newest = all[len(all)-1]
	}
	l.tried.Delete(c.ID)
	if newest > c.Sequence {
		if err := l.store.Delete(ctx, l.key(c.Sequence)); err != nil {
			return nil, err
		}
		return nil, l.conflict(ctx, &Commit{Sequence: newest})
	}
	l.mine.Store(c.Sequence, brief(c))
	l.remember(c, asOf)
	return c, nil
}

// Elapsed returns how long ago a time was, by the clock that has gone on further: one of them stops while the
// machine sleeps, the other one can be set.
func Elapsed(since time.Time) time.Duration {
	now := time.Now()
	return max(now.Sub(since), now.Round(0).Sub(since.Round(0)))
}

// Mark creates the marker of the cluster, and checks that the store creates nothing twice. The first run
// calls it after its first commit, and before anything that other machines must know of.
func (l *Log) Mark(ctx context.Context) error {
	key := path.Join(markers, l.cluster)
	err := l.store.Create(ctx, key, []byte("castle\n"))
	if err == nil {
		if err = l.store.Create(ctx, key, []byte("castle\n")); err == nil {
			return errors.New(l.URL() + ": the server overwrites a value that exists, though castle asked " +
				"it not to (If-None-Match), so two runs could change a cluster at once\n" +
				"  use a server that has conditional writes: docs/state.md lists some")
		}
	}
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// each calls do for all values, 16 at a time, and returns the first error.
func each[T any](ctx context.Context, all []T, do func(context.Context, T) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var group sync.WaitGroup
	room := make(chan struct{}, 16)
	for _, one := range all {
		room <- struct{}{}
		if ctx.Err() != nil {
			break
		}
		group.Go(func() {
			defer func() { <-room }()
			if err := do(ctx, one); err != nil {
				cancel(err)
			}
		})
	}
	group.Wait()
	return context.Cause(ctx)
}
