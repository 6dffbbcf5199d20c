package record_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/fleet/record"
	"github.com/ephemeral-castle/castle/internal/history"
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
	ctx, run, err := record.Begin(t.Context(), o, func(text string) { t.Log(text) }, words...)
	if err != nil {
		t.Fatal(err)
	}
	return ctx, run
}

func done(cluster string) event.Event {
	return event.Event{Time: time.Now(), Kind: event.ClusterEnded, Cluster: cluster, Digest: "1",
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
			err := first.Add(ctx, started(first), done("blue/proxmox"),
				event.Event{Kind: event.WaveStarted, Wave: "rest"},
				event.Event{Kind: event.WaveApproved, Wave: "rest", Digest: "2"})
			if err != nil {
				t.Fatal(err)
			}
			// One at a time, and other words are another command.
			_, _, err = record.Begin(t.Context(), a, func(string) {}, "create", "env=staging")
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
	if err := errors.Join(first.Add(ctx, started(first), done("blue/proxmox")), first.End(ctx)); err != nil {
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
