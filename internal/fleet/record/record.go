// Package record keeps what a run over many clusters has done, in the store of the states, else in the state
// directory, so that the same command goes on where the last one ended, on any machine.
//
//	fleet_runs/<command>/<run>/<sequence>   an Entry as JSON, signed and encrypted as the states are
//
// A run has one writer. An entry exists if its number could be created: of two writers one loses, and stops.
// The writer adds an entry at least every third of the lock time. A writer that is dead is known at once on
// its own machine; elsewhere the next one watches for a lock time that nothing is added, whatever the clocks
// say. Each cluster's own lock protects the cluster: the record only says what need not be done again.
package record

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/fleet"
	"github.com/ephemeral-castle/castle/internal/process"
	"github.com/ephemeral-castle/castle/internal/state/commits"
	"github.com/ephemeral-castle/castle/internal/store"
)

const (
	folder   = "fleet_runs/" // no name of a cluster has an underscore
	keep     = 5             // so many runs of a command stay
	readers  = 16
	idLayout = "20060102T150405.000"
)

// Entry is one step of a run. One field beside Time is set; none in a sign of life.
type Entry struct {
	Time     time.Time `json:"time"`
	Writer   *Writer   `json:"writer,omitempty"` // begins or continues the run
	Done     *Done     `json:"done,omitempty"`
	Approved *Approval `json:"approved,omitempty"`
	Passed   string    `json:"passed,omitempty"` // a wave that has ended well, and soaked
	// Ended is how the writer ended. The run is complete if it succeeded.
	Ended event.Outcome `json:"ended,omitempty"`
}

// Writer is a process that writes the record.
type Writer struct {
	Title string `json:"title"` // create env=staging
	By    string `json:"by"`    // user@host
	Host  string `json:"host"`
	Boot  string `json:"boot"` // identifies the machine since its start, with its process table
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // of the process
	// Lasts is how long the writer is silent at most.
	Lasts time.Duration `json:"lasts"`
}

// Done is how the command ended for one cluster.
type Done struct {
	Wave    string        `json:"wave"`
	Cluster string        `json:"cluster"`
	Result  event.Outcome `json:"result"`
	// Digest is that of the configuration to which the cluster was brought.
	Digest string `json:"digest"`
}

// Approval says who approved a wave, with which configuration.
type Approval struct {
	Wave   string `json:"wave"`
	By     string `json:"by"`
	Digest string `json:"digest"`
}

// Run is one run. Its exported fields are what the entries say.
type Run struct {
	ID       string
	Writer   Writer // the newest one
	Began    time.Time
	Updated  time.Time
	Done     map[string]Done      // by cluster
	Approved map[string]Approval  // by wave
	Passed   map[string]time.Time // by wave: when it has
	Ended    event.Outcome        // empty while it is at work, or if it was killed

	log    *Log
	folder string // of its keys
	mu     sync.Mutex
	last   int      // the number of the newest entry
	tried  [][]byte // values of the next one whose answer was lost
	lost   error
}

// Log is the runs of one command.
type Log struct {
	store      store.Store
	encryption commits.Encryption
	prefix     string
	lasts      time.Duration
}

// Open returns the runs of a command; all that have the same words are one. It makes no request. lasts is how
// long a writer may be silent.
func Open(s store.Store, e commits.Encryption, lasts time.Duration, words ...string) *Log {
	sum := sha256.Sum256([]byte(strings.Join(words, "\x00")))
	return &Log{store: s, encryption: e, prefix: folder + fmt.Sprintf("%x/", sum[:8]), lasts: lasts}
}

// HeldError reports that another process, which is alive, writes the record.
type HeldError struct{ Run *Run }

func (e *HeldError) Error() string {
	w := e.Run.Writer
	return fmt.Sprintf("fleet %s: run %s of %s (process %d) is at work; wait until it ends, or interrupt it",
		w.Title, e.Run.ID, w.By, w.PID)
}

// LostError reports that another process continues the run.
type LostError struct{ ID string }

func (e *LostError) Error() string {
	return fmt.Sprintf("fleet: another castle continues the run %s; this one begins nothing more", e.ID)
}

// Newest returns the newest run of the command; nil if there is none.
func (l *Log) Newest(ctx context.Context) (*Run, error) {
	runs, err := list(ctx, l.store, l.prefix)
	if err != nil || len(runs) == 0 {
		return nil, err
	}
	return l.read(ctx, slices.Max(slices.Collect(maps.Keys(runs))), runs)
}

// Latest returns the newest run of any command; nil if there is none.
func Latest(ctx context.Context, s store.Store, e commits.Encryption) (*Run, error) {
	runs, err := list(ctx, s, folder)
	if away, is := errors.AsType[*store.Error](err); is && away.Kind == store.Missing {
		err = nil // there is no state directory yet
	}
	if err != nil || len(runs) == 0 {
		return nil, err
	}
	newest := slices.MaxFunc(slices.Collect(maps.Keys(runs)), func(a, b string) int {
		return strings.Compare(path.Base(a), path.Base(b))
	})
	l := &Log{store: s, encryption: e, prefix: path.Dir(newest) + "/"}
	return l.read(ctx, newest, runs)
}

// list returns the keys of each run, by its folder.
func list(ctx context.Context, s store.Store, prefix string) (map[string][]string, error) {
	keys, err := s.List(ctx, prefix)
	runs := map[string][]string{}
	for _, key := range keys {
		runs[path.Dir(key)] = append(runs[path.Dir(key)], key)
	}
	return runs, err
}

// read reads the entries of a run.
func (l *Log) read(ctx context.Context, dir string, runs map[string][]string) (*Run, error) {
	keys := runs[dir]
	entries, failed := make([]Entry, len(keys)), make([]error, len(keys))
	fleet.Each(ctx, readers, keys, func(i int, key string) {
		sealed, err := l.store.Read(ctx, key)
		if err == nil {
			sealed, err = l.encryption.UnsealSigned(l.store.URL()+" "+key, purpose(key), sealed)
		}
		if err == nil {
			err = json.Unmarshal(sealed, &entries[i])
		}
		failed[i] = err
	})
	if err := cmp.Or(context.Cause(ctx), errors.Join(failed...)); err != nil {
		return nil, fmt.Errorf("the record of the run %s: %w\n  --restart begins anew", path.Base(dir), err)
	}
	r := l.run(path.Base(dir))
	for _, e := range entries {
		r.add(e)
	}
	return r, nil
}

func (l *Log) run(id string) *Run {
	return &Run{ID: id, log: l, folder: l.prefix + id + "/", Done: map[string]Done{},
		Approved: map[string]Approval{}, Passed: map[string]time.Time{}}
}

// purpose is what an entry is signed for: nobody can pass it off as another one.
func purpose(key string) string { return "castle fleet " + key }

func (r *Run) add(e Entry) {
	if r.last == 0 {
		r.Began = e.Time
	}
	r.last++
	r.Updated, r.Ended = e.Time, e.Ended
	switch {
	case e.Writer != nil:
		r.Writer = *e.Writer
	case e.Done != nil:
		r.Done[e.Done.Cluster] = *e.Done
	case e.Approved != nil:
		r.Approved[e.Approved.Wave] = *e.Approved
	case e.Passed != "":
		r.Passed[e.Passed] = e.Time
	}
}

// Begin begins a run, which is newer than newest, and removes old ones.
func (l *Log) Begin(ctx context.Context, w Writer) (*Run, error) {
	runs, err := list(ctx, l.store, l.prefix)
	if err != nil {
		return nil, err
	}
	ids := slices.Sorted(maps.Keys(runs))
	now := time.Now().UTC()
	if len(ids) > 0 { // a clock may have been ahead
		at, _, _ := strings.Cut(path.Base(ids[len(ids)-1]), "-")
		if last, err := time.Parse(idLayout, at); err == nil && !now.Truncate(time.Millisecond).After(last) {
			now = last.Add(time.Millisecond)
		}
	}
	for _, old := range ids[:max(0, len(ids)-keep+1)] {
		for _, key := range runs[old] {
			err = errors.Join(err, l.store.Delete(ctx, key))
		}
	}
	w.Lasts = l.lasts
	r := l.run(fmt.Sprintf("%s-fleet-%06x", now.Format(idLayout), rand.IntN(1<<24)))
	return r, errors.Join(err, r.Append(ctx, Entry{Writer: &w}))
}

// Continue makes w the writer of a run that has none any more. It watches the record of one that may be
// alive; the error is a *HeldError if it is. notice is called before castle watches.
func (r *Run) Continue(ctx context.Context, w Writer, notice func(string)) error {
	if r.Ended == "" && !r.Writer.gone(w) {
		notice(fmt.Sprintf("the run %s of %s has no end: castle watches for %v whether it is at work", r.ID,
			r.Writer.By, r.Writer.Lasts))
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(r.Writer.Lasts):
		}
		runs, err := list(ctx, r.log.store, r.folder)
		if err != nil {
			return err
		}
		if len(runs[path.Clean(r.folder)]) > r.last {
			return &HeldError{r}
		}
	}
	w.Lasts = r.log.lasts
	return r.Append(ctx, Entry{Writer: &w})
}

// gone reports whether a process of the machine of self is not there any more.
func (w Writer) gone(self Writer) bool {
	if w.Host != self.Host || w.Boot != self.Boot {
		return false
	}
	p, err := process.Read(w.PID)
	return errors.Is(err, fs.ErrNotExist) || err == nil && (p.Start != w.Start || p.Ended)
}

// Self returns this process as a writer.
func Self(title, by string) (Writer, error) {
	host, err := os.Hostname()
	if err != nil {
		return Writer{}, err
	}
	table, err := process.Table()
	if err != nil {
		return Writer{}, err
	}
	p, err := process.Read(os.Getpid())
	return Writer{Title: title, By: by, Host: host, Boot: process.BootID() + " " + table, PID: p.PID,
		Start: p.Start}, err
}

// Append adds an entry. The error is a *LostError if another process has added one.
func (r *Run) Append(ctx context.Context, e Entry) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lost != nil {
		return r.lost
	}
	e.Time = time.Now().UTC()
	text, err := json.Marshal(e)
	for err == nil {
		var sealed []byte
		key := r.folder + fmt.Sprintf("%06d", r.last+1)
		if sealed, err = r.log.encryption.SealSigned(r.log.store.URL(), purpose(key), text); err != nil {
			break
		}
		r.tried = append(r.tried, sealed)
		if err = r.log.store.Create(ctx, key, sealed); err == nil {
			r.tried = nil
			r.add(e)
			return nil
		}
		if !errors.Is(err, fs.ErrExist) {
			break
		}
		var there []byte
		if there, err = r.log.store.Read(ctx, key); err != nil {
			break
		}
		mine := func(tried []byte) bool { return bytes.Equal(tried, there) }
		switch {
		case mine(sealed):
			r.tried = nil
			r.add(e)
			return nil
		case slices.ContainsFunc(r.tried, mine): // an earlier attempt: this entry is the next one
			r.tried = nil
			r.last++
		default:
			r.lost = &LostError{r.ID}
			return r.lost
		}
	}
	return err
}

// Hold adds signs of life until ctx is done. lost is called once another process writes the record.
func (r *Run) Hold(ctx context.Context, lost func(error)) {
	tick := time.NewTicker(r.log.lasts / 3)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		// A store that is away is no reason to stop: what matters is added by whoever waits for it.
		if err := r.Append(ctx, Entry{}); errors.As(err, new(*LostError)) {
			lost(err)
			return
		}
	}
}
