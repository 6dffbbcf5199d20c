package share

import (
	"context"
	"time"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/state/commits"
)

// Entry is one commit of a cluster's log.
type Entry struct {
	Number int64     `json:"number"`
	Time   time.Time `json:"time"`
	Run    string    `json:"run,omitempty"`
	User   string    `json:"user"`
	Host   string    `json:"host"`
	Castle string    `json:"castle"`
	What   string    `json:"what"`
	Files  int       `json:"files"` // of the whole state
	// Changed counts the files that were written or removed since the commit before; Bytes is the size of
	// those that were written. Both are absent if the store no longer has that commit.
	Changed *int   `json:"changed,omitempty"`
	Bytes   *int64 `json:"bytes,omitempty"`
	Locked  bool   `json:"locked"`
	Moved   string `json:"moved,omitempty"` // where the state lives instead
	Signer  string `json:"signer,omitempty"`
	// Untrusted reports that no signer in castle.hcl vouches for the commit.
	Untrusted bool `json:"untrusted,omitempty"`
}

// History returns the commits that the store still has, the newest first; all if limit is 0.
func History(ctx context.Context, c *cluster.Cluster, limit int) ([]Entry, error) {
	log, err := logOf(c)
	if err != nil {
		return nil, err
	}
	all, err := log.List(ctx)
	if err != nil {
		return nil, err
	}
	entries := []Entry{}
	for i, one := range all {
		if limit > 0 && i == limit {
			break
		}
		var before *commits.Commit
		if i+1 < len(all) && all[i+1].Sequence == one.Sequence-1 {
			before = all[i+1]
		}
		entries = append(entries, entry(one, before))
	}
	return entries, nil
}

func entry(one, before *commits.Commit) Entry {
	e := Entry{
		Number: one.Sequence, Time: one.Time, Run: one.Run, User: one.User, Host: one.Host,
		Castle: one.Castle, What: one.What, Files: len(one.Files), Locked: one.Lock != nil, Moved: one.Moved,
		Signer: one.Signer, Untrusted: one.Untrusted != nil,
	}
	if before == nil && one.Sequence > 1 {
		return e
	}
	if before == nil {
		before = &commits.Commit{}
	}
	changed, written := 0, int64(0)
	for path, f := range one.Files {
		if before.Files[path] != f {
			changed, written = changed+1, written+f.Size
		}
	}
	for path := range before.Files {
		if _, still := one.Files[path]; !still {
			changed++
		}
	}
	e.Changed, e.Bytes = &changed, &written
	return e
}
