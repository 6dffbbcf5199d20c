package workingcopy

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/ephemeral-castle/castle/internal/state/commits"
	"github.com/ephemeral-castle/castle/internal/state/commits/commitstest"
)

// twoCommits makes a first run with the serial 1 and a second one with the serial 2 and a new stage, and
// returns the commit of the first one.
func twoCommits(h *host) *commits.Commit {
	h.t.Helper()
	held := h.take("first")
	h.write(stateFile, `{"serial":1}`)
	h.release(held)
	first := h.head()
	held = h.take("second")
	h.write(stateFile, `{"serial":2}`)
	h.write("stages/new/record.json", "record")
	h.release(held)
	return first
}

func TestRestoreBringsAnEarlierCommitBack(t *testing.T) {
	inBubble(t, func(t *testing.T, s *commitstest.Memory) {
		a, b := newHost(t, s, "a"), newHost(t, s, "b")
		first := twoCommits(a)
		held := b.take("restore")
		if err := held.Restore(t.Context(), first, "restored"); err != nil {
			t.Fatal(err)
		}
		b.expect(stateFile, `{"serial":1}`)
		b.expect("stages/new/record.json", "")
		b.release(held)
		if head := b.head(); head.Files[stateFile].Object == first.Files[stateFile].Object {
			t.Error("the contents were not stored anew: a run that removes old objects could remove them")
		}
		a.checkout()
		a.expect(stateFile, `{"serial":1}`)
		a.expect("stages/new/record.json", "")
	})
}

func TestARestoreThatDiesLeavesOneOfTheCommits(t *testing.T) {
	for _, answerLost := range []bool{false, true} {
		inBubble(t, func(t *testing.T, s *commitstest.Memory) {
			a := newHost(t, s, "a")
			first := twoCommits(a)
			held := a.take("restore")
			fail := func(op, key string) error {
				if op == "create" && strings.Contains(key, "/log/") {
					return errors.New("killed")
				}
				return nil
			}
			if answerLost {
				a.s.SetAfter(fail)
			} else {
				a.s.SetBefore(func(_ context.Context, op, key string) error { return fail(op, key) })
			}
			if err := held.Restore(t.Context(), first, "restored"); err == nil {
				t.Fatal("no error")
			}
			a.expect(stateFile, `{"serial":2}`)
			die(held)
			a.s.SetAfter(nil)
			a.s.SetBefore(nil)
			a.reopen("a")
			a.release(a.take("next"))
			want := map[bool]string{false: `{"serial":2}`, true: `{"serial":1}`}[answerLost]
			a.expect(stateFile, want)
			b := newHost(t, s, "b")
			b.checkout()
			b.expect(stateFile, want)
		})
	}
}

func TestLeaveMarksTheLog(t *testing.T) {
	inBubble(t, func(t *testing.T, s *commitstest.Memory) {
		a := newHost(t, s, "a")
		first := twoCommits(a)
		held := a.take("migrate")
		if err := held.Leave(t.Context(), first, "memory://other"); err == nil {
			t.Error("it left though the state has changed")
		}
		a.release(held)
		held = a.take("migrate")
		if err := held.Leave(t.Context(), a.head(), "memory://other"); err != nil {
			t.Fatal(err)
		}
		if head := a.head(); head.Moved != "memory://other" || head.Lock != nil || len(head.Files) == 0 {
			t.Errorf("head: %+v", head)
		}
		_, err := a.copy.Take(t.Context(), "late", a.notice)
		if other, is := errors.AsType[*OtherError](err); !is || other.Actual != "memory://other" {
			t.Errorf("a run after that: %v", err)
		}

		// The directory follows.
		log, err := commits.Open(commitstest.New("memory://other"), "blue/proxmox", commits.Encryption{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Import(t.Context(), a.dir, log, nil, commits.Writer{Host: "b"}, "copied",
			""); err != nil {
			t.Fatal(err)
		}
		if err := Follow(a.dir, log); err != nil {
			t.Fatal(err)
		}
		if a.copy, err = Open(a.dir, log, commits.Writer{Host: "a"}); err != nil {
			t.Fatal(err)
		}
		a.checkout()
		a.expect(stateFile, `{"serial":2}`)
		a.expectNotice()
	})
}
