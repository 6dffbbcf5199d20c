package record_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/fleet/record"
	"github.com/ephemeral-castle/castle/internal/state/commits"
	"github.com/ephemeral-castle/castle/internal/state/commits/commitstest"
	"github.com/ephemeral-castle/castle/internal/state/keys"
	"github.com/ephemeral-castle/castle/internal/store"
)

const lasts = time.Minute

func open(s store.Store) *record.Log {
	return record.Open(s, commits.Encryption{}, lasts, "create", "env=staging")
}

// elsewhere is a writer on another machine.
func elsewhere(host string) record.Writer {
	return record.Writer{Title: "create", By: "user@" + host, Host: host}
}

func done(cluster string) record.Entry {
	return record.Entry{Done: &record.Done{Cluster: cluster, Result: event.OutcomeSucceeded, Digest: "1"}}
}

func TestANewWriterKnowsWhatTheLastOneDid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := commitstest.New("mem://")
		first, err := open(m).Begin(t.Context(), elsewhere("a"))
		err = errors.Join(err, first.Append(t.Context(), done("blue/proxmox")),
			first.Append(t.Context(), record.Entry{Passed: "staging"}),
			first.Append(t.Context(), record.Entry{Approved: &record.Approval{Wave: "rest", Digest: "2"}}),
			first.Append(t.Context(), record.Entry{Ended: event.OutcomeFailed}))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(24 * time.Hour)
		began := time.Now()
		run, err := open(m.Share()).Newest(t.Context())
		if err == nil {
			err = run.Continue(t.Context(), elsewhere("b"), func(text string) { t.Error(text) })
		}
		if err == nil && !run.Began.Equal(first.Began) {
			t.Error("a run that is continued has begun anew:", run.Began)
		}
		if err != nil || run.ID != first.ID || time.Since(began) != 0 {
			t.Fatal(run, err)
		}
		if run.Done["blue/proxmox"].Digest != "1" || run.Passed["staging"].IsZero() ||
			run.Approved["rest"].Digest != "2" || run.Writer.Host != "b" || run.Ended != "" {
			t.Errorf("%+v", run)
		}
		// The former writer, should it live, stops.
		if err := first.Append(t.Context(), done("green/proxmox")); !errors.As(err, new(*record.LostError)) {
			t.Error("a writer that has lost the run went on:", err)
		}
		// Other words are another command.
		other := record.Open(m, commits.Encryption{}, lasts, "create", "env=production")
		if run, err := other.Newest(t.Context()); run != nil || err != nil {
			t.Error(run, err)
		}
		if run, err := record.Latest(t.Context(), m, commits.Encryption{}); err != nil || run.ID != first.ID {
			t.Error(run, err)
		}
	})
}

func TestAWriterThatLivesKeepsTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := commitstest.New("mem://")
		ctx, kill := context.WithCancel(t.Context())
		first, err := open(m).Begin(ctx, elsewhere("a"))
		if err != nil {
			t.Fatal(err)
		}
		go first.Hold(ctx, func(err error) { t.Error(err) })
		time.Sleep(10 * lasts)
		next := func() error {
			run, err := open(m.Share()).Newest(t.Context())
			if err != nil {
				return err
			}
			return run.Continue(t.Context(), elsewhere("b"), func(string) {})
		}
		if err := next(); !errors.As(err, new(*record.HeldError)) {
			t.Error("the run of a living writer was taken:", err)
		}
		kill()
		synctest.Wait()
		began := time.Now()
		if err := next(); err != nil || time.Since(began) != lasts {
			t.Error(err, time.Since(began))
		}
	})
}

func TestAWriterThatHasDiedHereIsKnownAtOnce(t *testing.T) {
	self, err := record.Self("create", "me")
	if err != nil {
		t.Fatal(err)
	}
	dead := self
	dead.Start++ // another process had this number
	m := commitstest.New("mem://")
	run, err := open(m).Begin(t.Context(), dead)
	if err == nil {
		err = run.Continue(t.Context(), self, func(text string) { t.Error(text) })
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestALostAnswerIsNoOtherWriter(t *testing.T) {
	m := commitstest.New("mem://")
	run, err := open(m).Begin(t.Context(), elsewhere("a"))
	if err != nil {
		t.Fatal(err)
	}
	m.SetAfter(func(op, key string) error {
		if op == "create" {
			return m.Away(op, key)
		}
		return nil
	})
	if err := run.Append(t.Context(), done("blue/proxmox")); err == nil {
		t.Fatal("no answer, and no error")
	}
	m.SetAfter(nil)
	if err := run.Append(t.Context(), done("green/proxmox")); err != nil {
		t.Fatal(err)
	}
	read, err := open(m).Newest(t.Context())
	if err != nil || len(read.Done) != 2 {
		t.Error(read, err)
	}
}

func TestOldRunsAreRemoved(t *testing.T) {
	m := commitstest.New("mem://")
	for range 8 {
		if _, err := open(m).Begin(t.Context(), elsewhere("a")); err != nil {
			t.Fatal(err)
		}
	}
	keys, err := m.List(t.Context(), "fleet_runs/")
	if err != nil || len(keys) != 5 {
		t.Error(keys, err)
	}
}

// What only those who can write to the store have written is refused.
func TestAnEntryOfNobodyIsRefused(t *testing.T) {
	const identity = "AGE-SECRET-KEY-1GFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPQ4EGAEX"
	holders, err := keys.Parse(identity)
	if err != nil {
		t.Fatal(err)
	}
	signed := commits.Encryption{Recipients: []string{holders[0].Recipient},
		Signers: []string{holders[0].Signer}, Identities: identity}
	m := commitstest.New("mem://")
	log := record.Open(m, signed, lasts, "create")
	run, err := log.Begin(t.Context(), elsewhere("a"))
	if err == nil {
		err = run.Append(t.Context(), done("blue/proxmox"))
	}
	if err != nil {
		t.Fatal(err)
	}
	if read, err := log.Newest(t.Context()); err != nil || len(read.Done) != 1 {
		t.Fatal(read, err)
	}
	keys, err := m.List(t.Context(), "fleet_runs/")
	if err != nil || len(keys) != 2 {
		t.Fatal(keys, err)
	}
	second, err := m.Read(t.Context(), keys[1])
	if err != nil {
		t.Fatal(err)
	}
	for name, forged := range map[string][]byte{
		"in clear":              []byte(`{"approved":{"wave":"production"}}`),
		"in the place of first": second,
	} {
		m.Replace(keys[0], forged)
		if _, err := log.Newest(t.Context()); err == nil || !strings.Contains(err.Error(), "--restart") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
