//go:build integration

package commits

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ephemeral-castle/castle/internal/store"
	"github.com/ephemeral-castle/castle/internal/store/storetest"
)

func TestFolderConforms(t *testing.T) { conforms(t, storetest.Folder(t)) }

func TestPostgresConforms(t *testing.T) { conforms(t, storetest.Postgres(t)) }

func TestS3Conforms(t *testing.T) { conforms(t, storetest.S3(t)) }

// conforms checks what the log promises on a store. Each log has connections of its own, as on a machine of
// its own.
func conforms(t *testing.T, server *storetest.Server) {
	server.Setenv(t)
	machine := func(t *testing.T, name string) *Log {
		t.Helper()
		s, err := store.Open(t.Context(), server.URL)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		l, err := Open(s, name+"/proxmox", Encryption{})
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	for name, check := range map[string]func(*testing.T, func() *Log){
		"race": oneCommitWins, "reader": noHalfCommit, "lost": aLostLockRefuses,
		"interrupted": anInterruptedUpload, "prune": pruneKeepsWhatIsNamed,
	} {
		t.Run(name, func(t *testing.T) { check(t, func() *Log { return machine(t, name) }) })
	}
}

// oneCommitWins lets 8 machines append after the same commit at once, 500 times.
func oneCommitWins(t *testing.T, machine func() *Log) {
	const writers, rounds, most = 8, 500, 20
	var logs [writers]*Log
	for i := range logs {
		logs[i] = machine()
	}
	var newest *Commit
	for round := range rounds {
		if round%most == 0 && round > 0 { // as short as a pruned log is: S3 servers list slowly
			if err := logs[0].Prune(t.Context(), newest, 1, planned); err != nil {
				t.Fatal(err)
			}
		}
		var made [writers]*Commit
		var errs [writers]error
		var ready, all sync.WaitGroup
		ready.Add(writers)
		for i, l := range logs {
			all.Go(func() {
				ready.Done()
				ready.Wait()
				made[i], errs[i] = l.Append(t.Context(), newest, Commit{Run: fmt.Sprint("run-", i)})
			})
		}
		all.Wait()
		won := slices.IndexFunc(errs[:], func(err error) bool { return err == nil })
		if won < 0 {
			t.Fatalf("round %d: nobody wins: %v", round, errors.Join(errs[:]...))
		}
		for i, err := range errs {
			conflict, is := errors.AsType[*ConflictError](err)
			if i != won && (!is || conflict.Head.ID != made[won].ID) {
				t.Fatalf("round %d: %d wins, and %d gets %v, %v", round, won, i, made[i], errs)
			}
		}
		newest = made[won]
	}
	if c := head(t, machine()); c.ID != newest.ID || c.Sequence != rounds {
		t.Errorf("the head is commit %d, want %d", c.Sequence, rounds)
	}
}

// noHalfCommit reads heads while another machine commits two files that always are the same, and prunes.
func noHalfCommit(t *testing.T, machine func() *Log) {
	const rounds = 40
	writer := machine()
	c := add(t, writer, nil, "run-0", map[string]string{"a": "0", "b": "0"})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var readers sync.WaitGroup
	for range 3 {
		reader := machine()
		readers.Go(func() {
			for last := int64(0); ctx.Err() == nil; {
				now, err := reader.Head(t.Context())
				if err != nil || now.Sequence < last {
					t.Errorf("the head is %v, %v after %d", now, err, last)
					return
				}
				last = now.Sequence
				got, err := reader.Download(t.Context(), now)
				if errors.Is(err, fs.ErrNotExist) { // pruned meanwhile
					continue
				}
				if err != nil || string(got["a"]) != string(got["b"]) || len(got) != 2 {
					t.Errorf("commit %d: %q, %v", now.Sequence, got, err)
					return
				}
			}
		})
	}
	for n := range rounds {
		text := strings.Repeat(fmt.Sprint(n), 1+n*1000)
		c = add(t, writer, c, fmt.Sprint("run-", n), map[string]string{"a": text, "b": text})
		if err := writer.Prune(t.Context(), c, 2, planned); err != nil {
			t.Error(err)
		}
	}
	stop()
	readers.Wait()
}

// aLostLockRefuses takes over a lock, whose holder must not commit any more whatever happens.
func aLostLockRefuses(t *testing.T, machine func() *Log) {
	a, b := machine(), machine()
	lost := add(t, a, nil, "a", map[string]string{"state": "a"})
	taken := add(t, b, head(t, b), "b", map[string]string{"state": "b"})
	for n := range 10 {
		_, err := tryAdd(t.Context(), a, lost, "a", map[string]string{"state": "late"})
		conflict, is := errors.AsType[*ConflictError](err)
		if !is || conflict.Head.Run != "b" {
			t.Fatalf("the holder that has lost the lock commits: %v", err)
		}
		taken = add(t, b, taken, "b", map[string]string{"state": fmt.Sprint("b", n)})
		if err := b.Prune(t.Context(), taken, 1, planned); err != nil {
			t.Fatal(err)
		}
	}
	got, err := machine().Download(t.Context(), head(t, machine()))
	if err != nil || string(got["state"]) != "b9" {
		t.Errorf("the head has %q, %v", got["state"], err)
	}
}

// anInterruptedUpload cancels commits at all moments.
func anInterruptedUpload(t *testing.T, machine func() *Log) {
	l := machine()
	before := add(t, l, nil, "run", map[string]string{"state": "before"})
	large := strings.Repeat("0123456789abcdef", 1<<17)
	interrupted, tried := 0, map[string]bool{} // a commit can still arrive while the next one is tried
	for wait := time.Millisecond; wait < 200*time.Millisecond; wait = wait * 3 / 2 {
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		tried[large+wait.String()] = true
		c, err := tryAdd(ctx, l, before, "run", map[string]string{"state": large + wait.String()})
		cancel()
		now := head(t, machine())
		got, unread := machine().Download(t.Context(), now)
		if unread != nil {
			t.Fatal(unread)
		}
		if err == nil {
			before = c
		} else if interrupted++; now.ID != before.ID && !tried[string(got["state"])] {
			t.Fatalf("after %v: %v, and the head has %.20q", wait, err, got["state"])
		} else {
			before = now // the answer was lost
		}
	}
	if interrupted == 0 {
		t.Error("nothing was interrupted")
	}
	add(t, l, before, "run", map[string]string{"state": "after"})
}

// pruneKeepsWhatIsNamed prunes 10,000 commits of as many runs to 20.
func pruneKeepsWhatIsNamed(t *testing.T, machine func() *Log) {
	const count, stays = 10_000, 20
	l := machine()
	ctx := t.Context()
	var objects [count / 10]File
	numbers := make([]int, len(objects))
	for i := range numbers {
		numbers[i] = i
	}
	err := each(ctx, numbers, func(ctx context.Context, i int) error {
		files, err := l.Upload(ctx, [][]byte{fmt.Appendf(nil, "object %d", i)})
		if err == nil {
			objects[i] = files[0]
			objects[i].Mode = 0o600
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	numbers = make([]int, count)
	for i := range numbers {
		numbers[i] = i
	}
	// Append needs one round trip after the other; so many at once is the same log.
	err = each(ctx, numbers, func(ctx context.Context, i int) error {
		c := &Commit{Format: format, Sequence: int64(i) + 1, ID: fmt.Sprint("id-", i), Time: time.Now(),
			Run: fmt.Sprint("run-", i), Files: map[string]File{"old": objects[i/20], "new": objects[i/10]}}
		data, err := l.encode(c)
		if err != nil {
			return err
		}
		return l.store.Create(ctx, l.key(c.Sequence), data)
	})
	if err != nil {
		t.Fatal(err)
	}
	pruner := machine()
	if err := pruner.Prune(ctx, head(t, pruner), stays, planned); err != nil {
		t.Fatal(err)
	}
	reader := machine()
	left, err := reader.List(ctx)
	if err != nil || len(left) != stays || left[0].Sequence != count {
		t.Fatalf("%d commits are left, %v", len(left), err)
	}
	named := map[string]bool{}
	for _, c := range left {
		got, err := reader.Download(ctx, c)
		i := int(c.Sequence) - 1
		want := fmt.Sprintf("object %d, object %d", i/20, i/10)
		if text := string(got["old"]) + ", " + string(got["new"]); err != nil || text != want {
			t.Errorf("commit %d has %s, %v; want %s", c.Sequence, text, err, want)
		}
		named[c.Files["old"].Object], named[c.Files["new"].Object] = true, true
	}
	keys, err := l.store.List(ctx, l.prefix("objects"))
	if err != nil || len(keys) != len(named) {
		t.Errorf("%d objects are left, %v; %d are named", len(keys), err, len(named))
	}
	add(t, reader, left[0], "later", map[string]string{"new": "later"})
}
