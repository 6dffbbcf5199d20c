package record_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/age"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/fleet/record"
	"github.com/ephemeral-castle/castle/internal/history"
	"github.com/ephemeral-castle/castle/internal/state/keys"
)

// machine is a machine that shares a store, with a state directory of its own.
func machine(t *testing.T, store string) cluster.Options {
	t.Helper()
	home := t.TempDir()
	return cluster.Options{StateDir: filepath.Join(home, "state"),
		Environ: []string{"HOME=" + home, "CASTLE_STATE_STORE=" + store, "CASTLE_STATE_AT_LEAST=7"}}
}

func begin(t *testing.T, o cluster.Options, words ...string) (context.Context, *record.Run) {
	t.Helper()
	ctx, run, err := record.Begin(t.Context(), o, false, func(text string) { t.Log(text) }, words...)
	if err != nil {
		t.Fatal(err)
	}
	return ctx, run
}

func done(run *record.Run, cluster string) event.Event {
	return event.Event{Time: time.Now(), Run: run.ID, Kind: event.ClusterEnded, Cluster: cluster, Digest: "1",
		Ending: &event.Ending{Result: event.OutcomeSucceeded}}
}

func started(run *record.Run) event.Event {
	return event.Event{Time: time.Now(), Run: run.ID, Kind: event.RunStarted, Command: "castle fleet create"}
}

func TestAnotherMachineKnowsWhatTheLastRunDid(t *testing.T) {
	for name, store := range map[string]string{"a store": "file://" + t.TempDir(), "none": ""} {
		t.Run(name, func(t *testing.T) {
			a := machine(t, store)
			b := a
			if store != "" {
				b = machine(t, store)
			}
			ctx, first := begin(t, a, "create", "env=staging")
			if first.Before != nil {
				t.Error("there is a run before the first one:", first.Before)
			}
			err := first.Add(ctx, started(first), done(first, "blue/proxmox"),
				event.Event{Kind: event.WaveStarted, Wave: "rest"},
				event.Event{Kind: event.WaveApproved, Wave: "rest", Digest: "2"})
			if err != nil {
				t.Fatal(err)
			}
			// One at a time, and other words are another command.
			_, _, err = record.Begin(t.Context(), a, false, func(string) {}, "create", "env=staging")
			if !errors.As(err, new(*record.AtWorkError)) {
				t.Error("two runs of one command at once:", err)
			}
			if last, err := record.Latest(t.Context(), b); err != nil || last.ID != first.ID ||
				last.Result != history.Running {
				t.Errorf("%+v, %v", last, err)
			}
			elsewhere, other := begin(t, b, "create", "env=production")
			if other.Before != nil || other.End(elsewhere) != nil {
				t.Error(other.Before)
			}
			if err := first.End(ctx); err != nil {
				t.Fatal(err)
			}
			ctx, second := begin(t, b, "create", "env=staging")
			defer func() {
				if err := second.End(ctx); err != nil {
					t.Error(err)
				}
			}()
			kinds := []event.Kind{}
			for _, e := range second.Did {
				kinds = append(kinds, e.Kind)
			}
			if second.Before.ID != first.ID || second.Before.Result != history.Died ||
				!slices.Equal(kinds, []event.Kind{event.ClusterEnded, event.WaveApproved}) ||
				second.Did[0].Digest != "1" {
				t.Errorf("%+v %+v", second.Before, second.Did)
			}
		})
	}
}

// Otherwise each of many commands would leave its journals for ever.
func TestOldRunsAreRemoved(t *testing.T) {
	o := machine(t, "")
	for range 8 {
		ctx, run := begin(t, o, "create")
		if err := errors.Join(run.Add(ctx, started(run)), run.End(ctx)); err != nil {
			t.Fatal(err)
		}
	}
	runs, err := filepath.Glob(filepath.Join(o.StateDir, "fleet_runs", "local", "create", "*", "runs", "*"))
	if err != nil || len(runs) != 5 {
		t.Error(runs, err)
	}
}

func TestNothingIsWrittenToLookForTheLastRun(t *testing.T) {
	o := machine(t, "")
	if last, err := record.Latest(t.Context(), o); last != nil || err != nil {
		t.Error(last, err)
	}
	if _, err := os.Stat(o.StateDir); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// A run that ends before it does anything hides nothing of the one before.
func TestARunThatDidNothingIsPassedOver(t *testing.T) {
	a := machine(t, "file://"+t.TempDir())
	ctx, first := begin(t, a, "create", "x")
	if err := errors.Join(first.Add(ctx, started(first), done(first, "blue/proxmox")),
		first.End(ctx)); err != nil {
		t.Fatal(err)
	}
	ctx, second := begin(t, a, "create", "x")
	if err := second.End(ctx); err != nil {
		t.Fatal(err)
	}
	ctx, third := begin(t, a, "create", "x")
	if len(third.Did) != 1 || third.Before.ID != first.ID {
		t.Errorf("before %+v, did %v", third.Before, third.Did)
	}
	if err := third.End(ctx); err != nil {
		t.Error(err)
	}
}

// A run that was killed while it copied the run before knows a part of it alone.
func TestARunThatWasKilledWhileItCopiedForgetsNothing(t *testing.T) {
	o := machine(t, "")
	ctx, first := begin(t, o, "create")
	if err := errors.Join(first.Add(ctx, started(first), done(first, "blue/proxmox"),
		done(first, "green/proxmox")), first.End(ctx)); err != nil {
		t.Fatal(err)
	}
	ctx, killed := begin(t, o, "create")
	if err := errors.Join(killed.Add(ctx, started(killed), killed.Did[0]), killed.End(ctx)); err != nil {
		t.Fatal(err)
	}
	ctx, third := begin(t, o, "create")
	if len(third.Did) != 2 || third.Before.ID != first.ID {
		t.Errorf("before %+v, did %v", third.Before, third.Did)
	}
	// One that stops before an approval has done nothing more, and tells all.
	skipped := event.Event{Run: third.ID, Kind: event.ClusterSkipped, Cluster: "red/metal"}
	if err := errors.Join(third.Add(ctx, append(third.Did, started(third), skipped)...),
		third.End(ctx)); err != nil {
		t.Fatal(err)
	}
	ctx, fourth := begin(t, o, "create")
	if len(fourth.Did) != 2 || fourth.Before.ID != third.ID || fourth.End(ctx) != nil {
		t.Errorf("before %+v, did %v", fourth.Before, fourth.Did)
	}
}

// With other keys the earlier record is not readable, or nobody would trust it.
func TestOtherKeysBeginAnew(t *testing.T) {
	home, storage := t.TempDir(), "file://"+t.TempDir()
	withKeys := func() cluster.Options {
		identity, err := age.GenerateX25519Identity()
		if err != nil {
			t.Fatal(err)
		}
		holders, err := keys.Parse(identity.String())
		if err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprintf("state {\n  store = %q\n  encryption {\n    recipients = [%q]\n"+
			"    signers = [%q]\n  }\n}\n", storage, identity.Recipient(), holders[0].Signer)
		o := cluster.Options{StateDir: filepath.Join(home, "state"), Repository: t.TempDir(),
			Environ: []string{"HOME=" + home, "CASTLE_AGE_IDENTITY=" + identity.String()}}
		if err := os.WriteFile(filepath.Join(o.Repository, "castle.hcl"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return o
	}
	ctx, first := begin(t, withKeys(), "create")
	if err := errors.Join(first.Add(ctx, started(first), done(first, "blue/proxmox")),
		first.End(ctx)); err != nil {
		t.Fatal(err)
	}
	o := withKeys()
	if last, err := record.Latest(t.Context(), o); last != nil || err != nil {
		t.Error(last, err)
	}
	ctx, second := begin(t, o, "create")
	if second.Before != nil {
		t.Errorf("%+v", second.Before)
	}
	if err := errors.Join(second.Add(ctx, started(second)), second.End(ctx)); err != nil {
		t.Fatal(err)
	}
	if last, err := record.Latest(t.Context(), o); err != nil || last == nil || last.ID != second.ID {
		t.Error(last, err)
	}
}

func TestARestartNeedsNoRecord(t *testing.T) {
	storage := t.TempDir()
	o := machine(t, "file://"+storage)
	ctx, first := begin(t, o, "create")
	if err := errors.Join(first.Add(ctx, started(first), done(first, "blue/proxmox")),
		first.End(ctx)); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(storage, "fleet_runs")); err != nil {
		t.Fatal(err)
	}
	_, _, err := record.Begin(t.Context(), o, false, func(string) {}, "create")
	if err == nil ||
		!strings.HasPrefix(err.Error(), "the record of castle fleet create: file://") ||
		!strings.HasSuffix(err.Error(), "\n  to begin without it, add --restart") ||
		strings.Contains(err.Error(), "castle state") {
		t.Errorf("got %v", err)
	}
	ctx, second, err := record.Begin(t.Context(), o, true, func(string) {}, "create")
	if err != nil {
		t.Fatal(err)
	}
	if second.Before != nil || second.End(ctx) != nil {
		t.Errorf("%+v", second.Before)
	}
}

// A record has no cluster: the notice says what is locked.
func TestANoticeNamesTheRecord(t *testing.T) {
	storage := "file://" + t.TempDir()
	a, b := machine(t, storage), machine(t, storage)
	a.Environ = append(a.Environ, "CASTLE_STATE_LOCK_TIME=1s")
	ctx, first := begin(t, a, "create")
	var notices []string
	_, _, err := record.Begin(t.Context(), b, false, func(text string) {
		notices = append(notices, text)
	}, "create")
	if !errors.As(err, new(*record.AtWorkError)) {
		t.Error(err)
	}
	if len(notices) != 1 ||
		!strings.HasPrefix(notices[0], "the record of castle fleet create is locked by run ") {
		t.Errorf("%q", notices)
	}
	if err := first.End(ctx); err != nil {
		t.Error(err)
	}
}
