package workingcopy

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/state/commits"
	"github.com/ephemeral-castle/castle/internal/state/commits/commitstest"
	"github.com/ephemeral-castle/castle/internal/store"
)

const url = "memory://store"

// host is one machine with a state directory.
type host struct {
	t    *testing.T
	dir  *state.Dir
	s    *commitstest.Memory
	copy *Copy

	mu      sync.Mutex
	notices []string
}

// newHost returns another machine that uses a store.
func newHost(t *testing.T, s *commitstest.Memory, name string) *host {
	t.Helper()
	h := &host{t: t, s: s.Share()}
	var err error
	if h.dir, err = state.Open(t.TempDir(), "blue", "proxmox"); err != nil {
		t.Fatal(err)
	}
	h.write(layoutFile, "1\n")
	h.reopen(name)
	return h
}

func (h *host) reopen(name string) {
	h.t.Helper()
	log, err := commits.Open(h.s, "blue/proxmox", commits.Encryption{})
	if err != nil {
		h.t.Fatal(err)
	}
	h.copy, err = Open(h.dir, log, commits.Writer{Host: name, User: "user", Castle: "v1"})
	if err != nil {
		h.t.Fatal(err)
	}
	h.copy.machine = name
}

func (h *host) notice(text string) {
	if text == commits.InClear(h.copy.log) { // on each machine's first use
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.notices = append(h.notices, text)
}

// expectNotice checks that one notice has all these texts, and forgets all.
func (h *host) expectNotice(texts ...string) {
	h.t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(texts) == 0 && len(h.notices) > 0 {
		h.t.Errorf("notices: %q", h.notices)
	}
	all := strings.Join(h.notices, "\n")
	for _, text := range texts {
		if !strings.Contains(all, text) {
			h.t.Errorf("notices: %q, want %q", h.notices, text)
		}
	}
	h.notices = nil
}

func (h *host) take(run string) *Held {
	h.t.Helper()
	held, err := h.copy.Take(h.t.Context(), run, h.notice)
	if err != nil {
		h.t.Fatal(err)
	}
	return held
}

// die ends the run without a word.
func die(h *Held) { h.end() }

func (h *host) checkout() {
	h.t.Helper()
	notices, err := h.copy.Checkout(h.t.Context())
	if err != nil {
		h.t.Fatal(err)
	}
	for _, text := range notices {
		h.notice(text)
	}
}

func (h *host) write(name, text string) {
	h.t.Helper()
	path := filepath.Join(h.dir.Path(), name)
	now := time.Now() // of the bubble
	err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600),
		os.Chtimes(path, now, now))
	if err != nil {
		h.t.Fatal(err)
	}
}

// remove removes a file or folder as a run does.
func (h *host) remove(name string) {
	h.t.Helper()
	if err := h.dir.Remove(h.copy.path(name)); err != nil {
		h.t.Fatal(err)
	}
}

// lose removes it as no run does.
func (h *host) lose(name string) {
	h.t.Helper()
	if err := os.RemoveAll(h.copy.path(name)); err != nil {
		h.t.Fatal(err)
	}
}

// expect checks the content of a file; "" if it is not there.
func (h *host) expect(name, want string) {
	h.t.Helper()
	data, err := os.ReadFile(h.copy.path(name))
	if string(data) != want || err != nil && want != "" {
		h.t.Errorf("%s: %q, %v; want %q", name, data, err, want)
	}
}

func (h *host) commit(held *Held) {
	h.t.Helper()
	if err := held.Commit(h.t.Context(), "test"); err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) release(held *Held) {
	h.t.Helper()
	if err := held.Release(h.t.Context(), "end", 20); err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) head() *commits.Commit {
	h.t.Helper()
	c, err := h.copy.log.Head(h.t.Context())
	if err != nil {
		h.t.Fatal(err)
	}
	return c
}

const (
	stateFile  = "stages/keys/terraform.tfstate"
	recordName = "stages/keys/record.json"
	journal    = "runs/r/journal.jsonl"
)

// inBubble runs a test with a clock that only waiting moves.
func inBubble(t *testing.T, test func(t *testing.T, s *commitstest.Memory)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, commitstest.New(url)) })
}

func TestAnotherMachineGetsWhatARunCommits(t *testing.T) {
	inBubble(t, func(t *testing.T, s *commitstest.Memory) {
		a, b := newHost(t, s, "a"), newHost(t, s, "b")
		b.checkout() // of nothing
		held := a.take("run-a")
		a.write(stateFile, `{"serial":1}`)
		a.write(recordName, "record")
		a.write("stages/keys/module/script.sh", "#!/bin/sh")
		if err := os.Chmod(a.copy.path("stages/keys/module/script.sh"), 0o700); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"lock", "stages/keys/work/main.tf", "stages/keys/.record.json.castle-1",
			"stages/keys/.terraform.tfstate.lock.info", ".removed-keys/record.json"} {
			a.write(name, "of this machine")
		}
		a.write("stages/keys/work/errored.tfstate", `{"serial":2}`)
		a.commit(held)
		b.checkout()
		b.expect(stateFile, `{"serial":1}`)
		b.expect("stages/keys/work/errored.tfstate", `{"serial":2}`)
		for _, name := range []string{"lock", "stages/keys/work/main.tf", "stages/keys/.record.json.castle-1",
			"stages/keys/.terraform.tfstate.lock.info", ".removed-keys/record.json"} {
			b.expect(name, "")
		}
		if info, err := os.Stat(b.copy.path("stages/keys/module/script.sh")); err != nil ||
			info.Mode() != 0o700 {
			t.Errorf("script: %v, %v", info, err)
		}
		a.write(stateFile, `{"serial":2}`)
		a.remove("stages/keys/module")
		a.release(held)
		b.write("stages/keys/work/main.tf", "of b")
		b.checkout()
		b.expect(stateFile, `{"serial":2}`)
		b.expect("stages/keys/module/script.sh", "")
		b.expect("stages/keys/work/main.tf", "of b")
		if c := b.head(); c.Lock != nil || c.What != "end" || c.Host != "a" || c.Run != "run-a" {
			t.Errorf("head: %+v", c)
		}
		s.Requests()
		held = b.take("run-b")
		b.remove("stages/keys")
		b.release(held)
		a.checkout()
		a.expect("stages/keys/work/main.tf", "")
		a.expectNotice()
		b.expectNotice()
	})
}

func TestRoundTrips(t *testing.T) {
	inBubble(t, func(t *testing.T, s *commitstest.Memory) {
		a := newHost(t, s, "a")
		held := a.take("run-a")
		a.commit(held)
		a.s.Requests()
		a.write(stateFile, `{"serial":1}`)
		a.write(recordName, "record")
		a.commit(held)
		if made := a.s.Requests(); len(made) != 2 {
			t.Errorf("a commit of two files: %q", made)
		}
		a.write(recordName+".copy", "record")
		a.commit(held)
		if made := a.s.Requests(); len(made) != 1 {
			t.Errorf("a commit of a content that the store has: %q", made)
		}
		a.commit(held)
		if made := a.s.Requests(); len(made) != 0 {
			t.Errorf("a commit of nothing at once: %q", made)
		}
		a.release(held)
		a.s.Requests()
		a.reopen("a")
		a.checkout()
		if made := a.s.Requests(); len(made) != 2 || !strings.HasPrefix(made[0]+made[1], "list") &&
			!strings.HasPrefix(made[1]+made[0], "list") { // both at once
			t.Errorf("a checkout of what is there: %q", made)
		}
	})
}

func TestChangesAreCommittedWithinASecond(t *testing.T) {
	inBubble(t, func(t *testing.T, s *commitstest.Memory) {
		a, b := newHost(t, s, "a"), newHost(t, s, "b")
		held := a.take("run-a")
		a.write(stateFile, `{"serial":1}`)
		time.Sleep(time.Second)
		b.checkout()
		b.expect(stateFile, `{"serial":1}`)
		a.write(stateFile, `{"serial":`) // Terraform is writing
		a.write(recordName, "record")
		time.Sleep(time.Second)
		b.checkout()
		b.expect(stateFile, `{"serial":1}`)
		b.expect(recordName, "record")
		a.write(stateFile, `{"serial":2}`)
		time.Sleep(time.Second)
		b.checkout()
		b.expect(stateFile, `{"serial":2}`)
		before := b.head().Sequence
		for n := range 4 {
			a.write(journal, strings.Repeat("line\n", n+1))
			time.Sleep(time.Second)
		}
		if n := b.head().Sequence; n > before+1 {
			t.Errorf("%d commits for a journal in four seconds", n-before)
		}
		time.Sleep(2 * time.Second)
		b.checkout()
		b.expect(journal, strings.Repeat("line\n", 4))
		a.release(held)
	})
}

func TestALiveHolderKeepsTheLock(t *testing.T) {
	inBubble(t, func(t *testing.T, s *commitstest.Memory) {
		a, b := newHost(t, s, "a"), newHost(t, s, "b")
		held := a.take("run-a")
		time.Sleep(3 * time.Second)
		begun := time.Now()
		_, err := b.copy.Take(t.Context(), "run-b", b.notice)
		is, ok := errors.AsType[*state.HeldError](err)
		if !ok || is.Run != "run-a" || is.Host != "a" || is.Store != url {
			t.Errorf("got %v", err)
		}
		if waited := time.Since(begun); waited > 25*time.Second {
			t.Errorf("it took %v to see a sign of life", waited)
		}
		b.expectNotice("locked by run run-a", "at most 1m0s")
		if err := b.copy.Unlock(t.Context(), b.notice); !errors.As(err, new(*state.HeldError)) {
			t.Errorf("unlock: %v", err)
		}
		a.release(held)
		if err := b.copy.Unlock(t.Context(), b.notice); err != nil {
			t.Errorf("unlock of nothing: %v", err)
		}
		b.release(b.take("run-b"))
	})
}

func TestADeadHolderLosesTheLock(t *testing.T) {
	for _, how := range []string{"watched", "old", "process gone", "unlocked"} {
		t.Run(how, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *commitstest.Memory) {
				a, b := newHost(t, s, "a"), newHost(t, s, "b")
				if how == "process gone" {
					b.copy.machine = "a"
				}
				held := a.take("run-a")
				a.write(recordName, "record")
				a.commit(held)
				if die(held); how == "process gone" {
					held.lock.PID = 1 << 30
					a.write(recordName, "changed")
					if err := held.commit(t.Context(), "", true); err != nil {
						t.Fatal(err)
					}
				}
				if how == "old" {
					time.Sleep(11 * time.Minute)
				}
				begun := time.Now()
				doing := "taking over"
				if how == "unlocked" {
					doing = "removing its lock"
					if err := b.copy.Unlock(t.Context(), b.notice); err != nil {
						t.Fatal(err)
					}
					if c := b.head(); c.Lock != nil || c.Over != "run-a" {
						t.Errorf("head: %+v", c)
					}
				}
				next := b.take("run-b")
				took := time.Since(begun)
				if waits := how != "process gone"; waits != (took >= time.Minute) ||
					took > 70*time.Second {
					t.Errorf("it took %v", took)
				}
				b.expectNotice("run run-a on a died", doing)
				a.write(recordName, "zombie")
				a.s.Requests()
				lost := held.commit(t.Context(), "zombie", true)
				made := strings.Join(a.s.Requests(), "\n")
				stored := strings.Contains(made, "create blue/proxmox/objects/")
				if !errors.As(lost, new(*LostError)) || stored && how != "process gone" {
					t.Errorf("the dead holder: %v\n%s", lost, made)
				}
				b.release(next)
			})
		})
	}
}

// A holder that was stopped, and goes on after another run has taken over.
func TestAZombieCommitsNothing(t *testing.T) {
	for _, pruned := range []bool{false, true} {
		inBubble(t, func(t *testing.T, s *commitstest.Memory) {
			a, b := newHost(t, s, "a"), newHost(t, s, "b")
			zombie := a.take("zombie")
			stopped := make(chan struct{})
			a.s.SetBefore(func(_ context.Context, op, _ string) error {
				<-stopped
				return nil
			})
			a.write(recordName, "of the zombie")
			b.release(b.take("run-b"))
			for n := range 4 {
				held := b.take(fmt.Sprint("run-c", n))
				b.write(recordName, "of b")
				b.commit(held)
				if pruned {
					if err := held.Release(t.Context(), "end", 1); err != nil {
						t.Fatal(err)
					}
				} else {
					die(held)
					b.copy.machine = "" // or the next one ends this test
					time.Sleep(time.Second)
				}
			}
			close(stopped)
			err := zombie.Commit(t.Context(), "before the next stage")
			lost, is := errors.AsType[*LostError](err)
			if !is || lost.Run != "zombie" || !pruned && lost.By.Run != "run-c3" {
				t.Fatalf("got %v", err)
			}
			<-zombie.Lost()
			if zombie.Cause() == nil {
				t.Error("no cause")
			}
			if err := zombie.Release(t.Context(), "end", 1); !errors.As(err, new(*LostError)) {
				t.Errorf("release: %v", err)
			}
			c := newHost(t, s, "c")
			c.checkout()
			c.expect(recordName, "of b")
			a.s.SetBefore(nil)
			a.checkout()
			a.expect(recordName, "of b")
			a.expectNotice("never committed ("+recordName+")", "castle keeps the changed files in "+
				""+a.dir.Path())
			kept, err := filepath.Glob(a.copy.path("diverged/*/" + recordName))
			if err != nil || len(kept) != 1 {
				t.Fatalf("kept: %q, %v", kept, err)
			}
			if data, err := os.ReadFile(kept[0]); err != nil || string(data) != "of the zombie" {
				t.Errorf("kept: %q, %v", data, err)
			}
		})
	}
}

// A holder that was stopped for long goes on if nobody took over.
func TestAStoppedHolderGoesOn(t *testing.T) {
	inBubble(t, func(t *testing.T, s *commitstest.Memory) {
		a := newHost(t, s, "a")
		held := a.take("run-a")
		die(held)
		time.Sleep(time.Hour)
		a.write(recordName, "later")
		if err := held.commit(t.Context(), "test", true); err != nil {
			t.Error(err)
		}
	})
}

func TestTheNextRunCommitsWhatADeadOneLeft(t *testing.T) {
	for _, how := range []string{"same commit", "answer lost", "unlocked elsewhere"} {
		t.Run(how, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *commitstest.Memory) {
				a, b := newHost(t, s, "a"), newHost(t, s, "b")
				held := a.take("run-a")
				a.write(recordName, "one")
				a.write("stages/keys/gone.json", "gone")
				a.commit(held)
				die(held)
				a.write(recordName, "two")
				a.remove("stages/keys/gone.json")
				a.write(stateFile, `{"half`)
				if how == "answer lost" {
					a.s.SetAfter(func(op, key string) error { return a.s.Away(op, key) })
					if err := held.commit(t.Context(), "test", true); err == nil {
						t.Fatal("no error")
					}
					a.s.SetAfter(nil)
					r, err := load(a.dir)
					if err != nil {
						t.Fatal(err)
					}
					lost, err := a.copy.log.Read(t.Context(), r.Commit.Sequence)
					if err != nil {
						t.Fatal(err)
					}
					files, err := a.copy.log.Upload(t.Context(), [][]byte{[]byte("two")})
					if err != nil {
						t.Fatal(err)
					}
					next := a.copy.next("run-a", "lost", held.lock)
					next.Files = map[string]commits.File{recordName: files[0]}
					next.Files["stages/keys/gone.json"] = lost.Files["stages/keys/gone.json"]
					if _, err := a.copy.log.Append(t.Context(), lost, next); err != nil {
						t.Fatal(err)
					}
				}
				if how == "unlocked elsewhere" {
					if err := b.copy.Unlock(t.Context(), b.notice); err != nil {
						t.Fatal(err)
					}
				}
				a.reopen("a")
				a.checkout()
				a.expectNotice("has changes that " + url + " lacks")
				a.expect(recordName, "two")
				held = a.take("run-b")
				a.expectNotice("castle commits what run run-a has left on this machine", recordName)
				b.checkout()
				b.expect(recordName, "two")
				b.expect("stages/keys/gone.json", "")
				b.expect(stateFile, "")
				a.expect(stateFile, `{"half`)
				a.release(held)
			})
		})
	}
}

// Files that no run has removed come back, whoever looks first, and are never deleted for other machines.
func TestWhatIsMissingComesBack(t *testing.T) {
	for _, how := range []string{"checkout", "run", "during a run", "after a dead run"} {
		t.Run(how, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *commitstest.Memory) {
				a, b := newHost(t, s, "a"), newHost(t, s, "b")
				held := a.take("run-a")
				a.write(stateFile, `{"serial":1}`)
				a.write(recordName, "record")
				a.write("stages/keys/gone.json", "gone")
				a.commit(held)
				switch how {
				case "during a run":
					a.lose("stages")
					time.Sleep(time.Second)
					a.expect(stateFile, `{"serial":1}`)
					a.expectNotice("lacks files that no run of castle has removed")
				case "after a dead run":
					die(held)
					a.remove("stages/keys/gone.json")
					a.write(recordName, "changed")
					a.lose(stateFile)
					a.reopen("a")
					a.checkout()
					a.expectNotice("no run of castle has removed ("+stateFile+")",
						"has changes that "+url+" lacks")
					a.lose(stateFile)
					held = a.take("run-b")
					a.expectNotice("no run of castle has removed (" + stateFile + ")")
				default:
					a.release(held)
					a.lose("stages")
					if how == "checkout" {
						a.checkout()
						a.expect(stateFile, `{"serial":1}`)
						a.expectNotice("lacks files that no run of castle has removed")
					}
					held = a.take("run-b")
					if how == "run" {
						a.expectNotice("lacks files that no run of castle has removed")
					}
				}
				a.expect(stateFile, `{"serial":1}`)
				a.release(held)
				a.expectNotice()
				b.checkout()
				b.expect(stateFile, `{"serial":1}`)
				if how == "after a dead run" {
					b.expect(recordName, "changed")
					b.expect("stages/keys/gone.json", "")
				} else {
					b.expect(recordName, "record")
					b.expect("stages/keys/gone.json", "gone")
				}
			})
		})
	}
}

// A removal is listed until a commit has it, and no longer: what is written again and then lost comes back.
func TestARemovalCountsOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, s *commitstest.Memory) {
		a := newHost(t, s, "a")
		held := a.take("run-a")
		a.write(stateFile, `{"serial":1}`)
		a.write("stages/keys/intent.jsonl", "one")
		a.commit(held)
		a.remove("stages/keys/intent.jsonl")
		a.commit(held)
		a.expect("stages/keys/intent.jsonl", "")
		a.write("stages/keys/intent.jsonl", "two")
		a.commit(held)
		a.remove("stages/keys/intent.jsonl")
		a.write("stages/keys/intent.jsonl", "three")
		a.commit(held)
		a.lose("stages/keys/intent.jsonl")
		a.commit(held)
		a.expect("stages/keys/intent.jsonl", "three")
		a.expectNotice("no run of castle has removed (stages/keys/intent.jsonl)")
		a.release(held)
	})
}

func TestLinksAreRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, s *commitstest.Memory) {
		a := newHost(t, s, "a")
		held := a.take("run-a")
		a.write(stateFile, `{"serial":1}`)
		a.release(held)
		elsewhere := filepath.Join(t.TempDir(), "stages")
		for _, name := range []string{"stages", "stages/keys", stateFile, "stages/keys/work"} {
			link := a.copy.path(name)
			if name == "stages/keys/work" {
				elsewhere = t.TempDir()
			} else if err := os.Rename(link, elsewhere); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(elsewhere, link); err != nil {
				t.Fatal(err)
			}
			_, read := a.copy.Checkout(t.Context())
			_, taken := a.copy.Take(t.Context(), "run-b", a.notice)
			for _, err := range []error{read, taken} {
				if err == nil || !strings.Contains(err.Error(), link+" is a symbolic link") {
					t.Errorf("%s: %v", name, err)
				}
			}
			if err := os.Remove(link); err != nil {
				t.Fatal(err)
			}
			if name != "stages/keys/work" {
				if err := os.Rename(elsewhere, link); err != nil {
					t.Fatal(err)
				}
			}
		}
		a.release(a.take("run-c"))
		if _, named := a.head().Files[stateFile]; !named {
			t.Error("the state was committed as deleted")
		}
	})
}

// No clock makes a holder look dead: here it writes its times 11 minutes behind.
func TestAHolderWithAnotherClockKeepsTheLock(t *testing.T) {
	inBubble(t, func(t *testing.T, s *commitstest.Memory) {
		a, b := newHost(t, s, "a"), newHost(t, s, "b")
		held := a.take("run-a")
		a.write(stateFile, `{"serial":1}`)
		a.commit(held)
		die(held) // it sleeps until the next sign of life
		time.Sleep(11 * time.Minute)
		go func() {
			time.Sleep(50 * time.Second)
			if err := held.commit(context.Background(), "alive", true); err != nil {
				t.Error(err)
			}
		}()
		if _, err := b.copy.Take(t.Context(), "run-b", b.notice); !errors.As(err, new(*state.HeldError)) {
			t.Errorf("got %v", err)
		}
	})
}

func TestAStoreThatIsAway(t *testing.T) {
	inBubble(t, func(t *testing.T, s *commitstest.Memory) {
		a, b := newHost(t, s, "a"), newHost(t, s, "b")
		away := func(_ context.Context, op, key string) error { return a.s.Away(op, key) }
		a.s.SetBefore(away)
		if _, err := a.copy.Take(t.Context(), "run-a", a.notice); !isAway(err) {
			t.Errorf("at the start: %v", err)
		}
		if _, err := a.copy.Checkout(t.Context()); !isAway(err) {
			t.Errorf("checkout: %v", err)
		}
		a.s.SetBefore(nil)
		held := a.take("run-a")
		a.write(recordName, "one")
		a.commit(held)
		a.s.SetBefore(away)
		a.write(recordName, "two")
		if err := held.Commit(t.Context(), "before a change"); !isAway(err) {
			t.Errorf("in the middle: %v", err)
		}
		time.Sleep(5 * time.Minute)
		if len(a.notices) > 2 {
			t.Errorf("notices: %q", a.notices)
		}
		a.expectNotice("castle cannot commit now, and tries again: "+url,
			"castle waits for "+url+", for at most 1m0s; after that, it starts nothing more")
		a.s.SetBefore(nil)
		time.Sleep(10 * time.Second)
		a.expectNotice("the store is back")
		b.checkout()
		b.expect(recordName, "two")
		a.s.SetBefore(away)
		a.write(recordName, "three")
		var err error
		released := make(chan struct{})
		go func() {
			defer close(released)
			err = held.Release(t.Context(), "end", 20)
		}()
		time.Sleep(patience + time.Second) // long before castle gives up
		a.expectNotice("castle waits for "+url+", for at most 1m0s", "the last changes stay in "+a.dir.Path())
		<-released
		if !errors.As(err, new(*UncommittedError)) || !isAway(err) {
			t.Errorf("at the end: %v", err)
		}
		a.s.SetBefore(nil)
		a.copy.machine = "a"
		held = a.take("run-b")
		b.checkout()
		b.expect(recordName, "three")
		a.release(held)
	})
}

// The only copy of the last changes is in memory: a run waits longer, also for a folder that is not mounted.
func TestAVolatileCopyWaitsLonger(t *testing.T) {
	inBubble(t, func(t *testing.T, s *commitstest.Memory) {
		a := newHost(t, s, "a")
		a.copy.SetVolatile()
		held := a.take("run-a")
		missing := func(context.Context, string, string) error {
			return &store.Error{URL: url, Kind: store.Missing, Err: errors.New("not mounted")}
		}
		a.s.SetBefore(missing)
		a.write(recordName, "one")
		time.AfterFunc(9*commits.LockTime, func() { a.s.SetBefore(nil) })
		if err := held.Commit(t.Context(), "before a change"); err != nil {
			t.Error(err)
		}
		a.expectNotice("castle waits for " + url + ", for at most 10m0s; after that, it starts nothing more")
		a.s.SetBefore(missing)
		a.write(recordName, "two")
		begun := time.Now()
		err := held.Release(t.Context(), "end", 20)
		if took := time.Since(begun); !errors.As(err, new(*UncommittedError)) || took < 9*commits.LockTime {
			t.Errorf("at the end, after %v: %v", took, err)
		}
		a.expectNotice("a restart of the machine before that loses them")
		a.s.SetBefore(nil)
	})
}

// A connection can hang: what waits for its answer says so in time, and what needs none does not wait.
func TestAStoreThatDoesNotAnswer(t *testing.T) {
	inBubble(t, func(t *testing.T, s *commitstest.Memory) {
		a := newHost(t, s, "a")
		held := a.take("run-a")
		a.s.SetBefore(func(ctx context.Context, op, key string) error {
			<-ctx.Done()
			return a.s.Away(op, key)
		})
		a.write(recordName, "one")
		time.Sleep(20 * time.Second) // a sign of life has no answer
		begun := time.Now()
		if err := held.Cause(); err != nil || held.Head() == nil || time.Since(begun) > 0 {
			t.Errorf("got %v after %v", err, time.Since(begun))
		}
		if err := held.Commit(t.Context(), "before a change"); !isAway(err) ||
			!strings.Contains(err.Error(), "connection refused") {
			t.Errorf("got %v", err)
		}
		if took := time.Since(begun); took > 2*commits.LockTime {
			t.Errorf("it took %v", took)
		}
		a.s.SetBefore(nil)
		a.release(held)
	})
}

func TestAStoreThatRefusesFailsAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, s *commitstest.Memory) {
		a := newHost(t, s, "a")
		held := a.take("run-a")
		a.s.SetBefore(func(_ context.Context, op, key string) error {
			return &store.Error{URL: url, Op: op, Key: key, Kind: store.Refused, Err: errors.New("expired")}
		})
		a.write(recordName, "one")
		begun := time.Now()
		err := held.Commit(t.Context(), "before a change")
		if failed, is := errors.AsType[*store.Error](err); !is || failed.Kind != store.Refused {
			t.Errorf("got %v", err)
		}
		if took := time.Since(begun); took > time.Second {
			t.Errorf("it took %v", took)
		}
		a.s.SetBefore(nil)
		a.release(held)
	})
}

func TestCallsAtOnceShareACommit(t *testing.T) {
	inBubble(t, func(t *testing.T, s *commitstest.Memory) {
		a := newHost(t, s, "a")
		held := a.take("run-a")
		a.commit(held)
		a.s.SetBefore(func(context.Context, string, string) error {
			time.Sleep(20 * time.Millisecond)
			return nil
		})
		before := a.head().Sequence
		var group sync.WaitGroup
		for n := range 20 {
			name := fmt.Sprintf("stages/s%d/record.json", n)
			a.write(name, name)
			group.Go(func() {
				if err := held.Commit(t.Context(), "before "+name); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		if n := a.head().Sequence - before; n > 3 {
			t.Errorf("%d commits", n)
		}
		a.s.SetBefore(nil)
		a.release(held)
	})
}

func TestADirectoryWithAnotherStateIsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, s *commitstest.Memory) {
		a := newHost(t, s, "a")
		if err := Local(a.dir); err != nil {
			t.Errorf("an empty directory: %v", err)
		}
		held := a.take("run-a")
		a.write(recordName, "one")
		a.release(held)
		expect := func(err error, texts ...string) {
			t.Helper()
			if !errors.As(err, new(*OtherError)) {
				t.Errorf("got %v", err)
			}
			for _, text := range append(texts, "castle state migrate blue/proxmox --to") {
				if err != nil && !strings.Contains(err.Error(), text) {
					t.Errorf("got %v, want %q in it", err, text)
				}
			}
		}
		expect(Local(a.dir), "its state is in "+url)
		other, err := commits.Open(commitstest.New("memory://other"), "blue/proxmox", commits.Encryption{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = Open(a.dir, other, commits.Writer{})
		expect(err, "its state is in "+url, "memory://other is configured")
		if err := Detach(a.dir); err != nil {
			t.Fatal(err)
		}
		_, err = Open(a.dir, other, commits.Writer{})
		expect(err, "its state is in "+a.dir.Path()+" alone", "--to memory://other")
		if err := Local(a.dir); err != nil {
			t.Errorf("a state of its own: %v", err)
		}

		moved := a.copy.next("", "migrate", nil)
		moved.Moved = "s3://elsewhere"
		if _, err := a.copy.log.Append(t.Context(), a.head(), moved); err != nil {
			t.Fatal(err)
		}
		b := newHost(t, s, "b")
		_, err = b.copy.Checkout(t.Context())
		expect(err, "its state is in s3://elsewhere")
		_, err = b.copy.Take(t.Context(), "run-b", b.notice)
		expect(err, "its state is in s3://elsewhere")
	})
}

func TestAStoreThatWasEmptiedIsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, s *commitstest.Memory) {
		a := newHost(t, s, "a")
		held := a.take("run-a")
		a.write(recordName, "one")
		a.release(held)
		a.s = commitstest.New(url)
		a.reopen("a")
		var behind *BehindError
		if _, err := a.copy.Checkout(t.Context()); !errors.As(err, &behind) || behind.Head != 0 {
			t.Errorf("empty: %v", err)
		}
		b := newHost(t, a.s, "b")
		b.release(b.take("run-b"))
		if _, err := a.copy.Take(t.Context(), "run-c", a.notice); !errors.As(err, &behind) {
			t.Errorf("replaced: %v", err)
		}
		a.expect(recordName, "one")
	})
}

// A checkout that is killed leaves some files old and some new. They are no changes of this machine.
func TestACheckoutThatWasKilledIsCompleted(t *testing.T) {
	for killed := range 4 {
		inBubble(t, func(t *testing.T, s *commitstest.Memory) {
			a, b := newHost(t, s, "a"), newHost(t, s, "b")
			held := a.take("run-a")
			for _, name := range []string{"one", "two", "three"} {
				a.write("stages/"+name+"/record.json", "old")
			}
			a.release(held)
			b.checkout()
			held = a.take("run-c")
			a.write("stages/one/record.json", "new")
			a.write("stages/four/record.json", "new")
			a.remove("stages/three")
			a.release(held)
			r, err := load(b.dir)
			if err != nil {
				t.Fatal(err)
			}
			b.checkout()
			r.Pending = map[string]string{"stages/three/record.json": ""}
			for _, name := range []string{"stages/one/record.json", "stages/four/record.json"} {
				done, err := load(b.dir)
				if err != nil {
					t.Fatal(err)
				}
				r.Pending[name] = done.Files[name].SHA256
			}
			b.write("stages/three/record.json", "old")
			if killed > 0 {
				b.write("stages/one/record.json", "old")
			}
			if killed > 1 {
				b.remove("stages/four")
			}
			if killed > 2 {
				b.write("stages/two/record.json", "changed here")
			}
			if err := r.save(b.dir); err != nil {
				t.Fatal(err)
			}
			b.reopen("b")
			b.checkout()
			b.expect("stages/one/record.json", "new")
			b.expect("stages/two/record.json", "old")
			b.expect("stages/three/record.json", "")
			b.expect("stages/four/record.json", "new")
			if killed > 2 {
				b.expectNotice("never committed (stages/two/record.json)")
			}
			b.expectNotice()
		})
	}
}

func TestMigration(t *testing.T) {
	inBubble(t, func(t *testing.T, s *commitstest.Memory) {
		dir, err := state.Open(t.TempDir(), "blue", "proxmox")
		if err != nil {
			t.Fatal(err)
		}
		a := &host{t: t, s: s, dir: dir, copy: &Copy{dir: dir}}
		a.write(stateFile, `{"serial":1}`)
		a.write(recordName, "record")
		log, err := commits.Open(s, "blue/proxmox", commits.Encryption{})
		if err != nil {
			t.Fatal(err)
		}
		c, err := Import(t.Context(), dir, log, nil, commits.Writer{Host: "a"}, "migrate", "")
		if err != nil {
			t.Fatal(err)
		}
		a.write(recordName, "changed")
		if err := Attach(t.Context(), dir, log, c); err == nil || !strings.Contains(err.Error(), recordName) {
			t.Errorf("a directory that differs: %v", err)
		}
		a.write(recordName, "record")
		if err := Attach(t.Context(), dir, log, c); err != nil {
			t.Fatal(err)
		}
		a.reopen("a")
		a.checkout()
		a.expectNotice()
		b := newHost(t, s, "b")
		b.checkout()
		b.expect(stateFile, `{"serial":1}`)
		a.write("unseen", "")
		if err := Attach(t.Context(), dir, log, c); err == nil || !strings.Contains(err.Error(), "unseen") {
			t.Errorf("a file that was not copied: %v", err)
		}
	})
}

// A kill at any request leaves a store in which the migration can begin anew.
func TestAnImportThatWasKilledIsNoDamage(t *testing.T) {
	for n := 1; ; n++ {
		s := commitstest.New(url)
		a := newHost(t, s, "a")
		a.write(recordName, "record")
		requests, killed := 0, errors.New("killed")
		a.s.SetBefore(func(context.Context, string, string) error {
			if requests++; requests > n {
				return killed
			}
			return nil
		})
		_, err := Import(t.Context(), a.dir, a.copy.log, nil, commits.Writer{}, "migrate", "s3://from")
		if err == nil {
			return
		}
		if !errors.Is(err, killed) {
			t.Fatal(err)
		}
		a.s.SetBefore(nil)
		log, err := commits.Open(s, "blue/proxmox", commits.Encryption{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := log.Head(t.Context()); err != nil {
			t.Errorf("after %d requests: %v", n, err)
		}
	}
}

func TestLockTimeComesFromTheEnvironment(t *testing.T) {
	for text, want := range map[string]time.Duration{"": time.Minute, "5m": 5 * time.Minute,
		"1s": time.Second,
		"0s": 0, "soon": 0, "-1m": 0} {
		got, err := LockTime([]string{"CASTLE_STATE_LOCK_TIME=" + text})
		if got != want || (err == nil) != (want > 0) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}
