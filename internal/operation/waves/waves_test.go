package waves_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/fleet"
	"github.com/ephemeral-castle/castle/internal/operation/waves"
)

// world is a fleet whose clusters take a minute each, or half of it to fail. The log has a line for each
// thing that happens.
type world struct {
	t      *testing.T
	fails  map[string]bool
	closes map[string]time.Duration // how long after the beginning the gates of a cluster close
	config string
	away   time.Duration // how long after the beginning the store is away; 0: never
	did    []event.Event // the record

	mu      sync.Mutex
	running int
	most    int
	began   time.Time
	log     []string
}

func newWorld(t *testing.T) *world {
	return &world{t: t, fails: map[string]bool{}, closes: map[string]time.Duration{}, config: "1"}
}

func (w *world) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log = append(w.log, fmt.Sprintf("%v ", time.Since(w.began))+fmt.Sprintf(format, args...))
}

func (w *world) do(ctx context.Context, name string, _ func(event.Event)) event.Ending {
	w.mu.Lock()
	w.running++
	w.most = max(w.most, w.running)
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.running--
	}()
	w.note("create %s", name)
	takes := time.Minute
	if w.fails[name] {
		takes = takes / 2
	}
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		<-time.After(time.Second) // it ends orderly
		return event.Ending{Result: event.OutcomeInterrupted, ExitCode: 130}
	}
	if w.fails[name] {
		return event.Ending{Result: event.OutcomeFailed, ExitCode: 1}
	}
	return event.Ending{Result: event.OutcomeSucceeded}
}

// run runs the waves, as the same command does each time.
func (w *world) run(ctx context.Context, f *fleet.Fleet, approve bool) waves.Summary {
	w.t.Helper()
	w.began, w.log, w.most = time.Now(), nil, 0
	did := w.did
	w.did = nil
	return waves.Run(ctx, waves.Options{Command: "create", Fleet: f, Parallel: 2, Did: did, Waits: true,
		Do: w.do,
		Closed: func(_ context.Context, name string) string {
			if after, closes := w.closes[name]; closes && time.Since(w.began) >= after {
				return "gate etcd is closed"
			}
			return ""
		},
		Digest: func(name string) (string, error) { return w.config + name, nil },
		Approve: func(_ context.Context, wave *fleet.Wave) (string, error) {
			w.note("approve %s", wave.Name)
			if !approve {
				return "", errors.New("nobody approves")
			}
			return "me", nil
		},
		Record: func(_ context.Context, events ...event.Event) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.away > 0 && time.Since(w.began) > w.away {
				return errors.New("the store is away")
			}
			w.did = append(w.did, events...)
			return nil
		},
		Report: func(event.Event) {},
	})
}

// happened compares the log, whose order within a moment does not matter.
func (w *world) happened(want ...string) {
	w.t.Helper()
	slices.Sort(w.log)
	slices.Sort(want)
	if !slices.Equal(w.log, want) {
		w.t.Errorf("happened\n  %s\nwant\n  %s", strings.Join(w.log, "\n  "), strings.Join(want, "\n  "))
	}
}

func wave(name string, clusters ...string) *fleet.Wave {
	w := &fleet.Wave{Name: name}
	for _, c := range clusters {
		w.Clusters = append(w.Clusters, fleet.Cluster{Name: c})
	}
	return w
}

func notBegun(s waves.Summary) (names []string) {
	for _, r := range s.Results {
		if r.Text == waves.NotBegun {
			names = append(names, r.Cluster)
		}
	}
	return names
}

// good reports whether all clusters have succeeded.
func good(s waves.Summary) bool {
	return s.Err == nil && s.Red == "" &&
		!slices.ContainsFunc(s.Results, func(e event.Event) bool { return !waves.Succeeded(e) })
}

func TestWavesComeOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		second := wave("second", "d", "e")
		second.Parallel = 1
		first := wave("first", "a", "b", "c")
		s := w.run(t.Context(), &fleet.Fleet{Waves: []*fleet.Wave{first, second}}, false)
		w.happened("0s create a", "0s create b", "1m0s create c", "2m0s create d", "3m0s create e")
		if !good(s) || w.most != 2 {
			t.Errorf("%+v, %d at a time", s, w.most)
		}
	})
}

func TestARedWaveStopsTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.fails["a"] = true
		f := &fleet.Fleet{Waves: []*fleet.Wave{wave("first", "a", "b", "c"), wave("second", "d")}}
		s := w.run(t.Context(), f, false)
		w.happened("0s create a", "0s create b")
		if s.Red != "first" || !slices.Equal(notBegun(s), []string{"c", "d"}) {
			t.Errorf("%+v", s)
		}
		// The same command begins with what is missing.
		w.fails = nil
		s = w.run(t.Context(), f, false)
		w.happened("0s create a", "0s create c", "1m0s create d")
		if !good(s) {
			t.Errorf("%+v", s)
		}
	})
}

func TestSomeClustersMayFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.fails["a"] = true
		first := wave("first", "a", "b", "c")
		first.MaxFailures = 1
		s := w.run(t.Context(), &fleet.Fleet{Waves: []*fleet.Wave{first, wave("second", "d")}}, false)
		w.happened("0s create a", "0s create b", "30s create c", "1m30s create d")
		if s.Red != "" || good(s) {
			t.Errorf("%+v", s)
		}
	})
}

func TestTheCanaryComesFirstAndMayNotFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		first := wave("first", "a", "b", "c")
		first.Canary, first.MaxFailures, first.Soak = 1, 2, 10*time.Minute
		f := &fleet.Fleet{Waves: []*fleet.Wave{first}}
		w.fails["a"] = true
		if s := w.run(t.Context(), f, false); s.Red != "first" {
			t.Errorf("%+v", s)
		}
		w.happened("0s create a")
		w.fails = nil
		w.run(t.Context(), f, false)
		w.happened("0s create a", "11m0s create b", "11m0s create c")
		if took := time.Since(w.began); took != 22*time.Minute {
			t.Error("no soak after the wave:", took)
		}
	})
}

// With --select, the canary is often all that is left of a wave.
func TestAWaveThatIsAllCanaryMayNotFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.fails["a"] = true
		first := wave("first", "a")
		first.Canary, first.MaxFailures, first.Soak = 3, 1, 10*time.Minute
		f := &fleet.Fleet{Waves: []*fleet.Wave{first, wave("second", "b")}}
		if s := w.run(t.Context(), f, false); s.Red != "first" || !slices.Equal(notBegun(s), []string{"b"}) {
			t.Errorf("%+v", s)
		}
		w.happened("0s create a")
		w.fails = nil
		w.run(t.Context(), f, false)
		w.happened("0s create a", "11m0s create b") // it soaks once
	})
}

func TestAGateThatClosesWhileAWaveSoaksStopsTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.closes["b"] = 5 * time.Minute
		first := wave("first", "a", "b")
		first.Soak = 10 * time.Minute
		s := w.run(t.Context(), &fleet.Fleet{Waves: []*fleet.Wave{first, wave("second", "d")}}, false)
		if s.Red != "first" || s.Reason != "while it soaked, b: gate etcd is closed" ||
			!slices.Equal(notBegun(s), []string{"d"}) || time.Since(w.began) > 5*time.Minute+30*time.Second {
			t.Errorf("%+v after %v", s, time.Since(w.began))
		}
	})
}

func TestAWaveWaitsForItsPauseAndForAnApproval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		second := wave("second", "b", "c")
		second.Pause, second.Approval = time.Hour, true
		f := &fleet.Fleet{Waves: []*fleet.Wave{wave("first", "a"), second}}
		s := w.run(t.Context(), f, false)
		w.happened("0s create a", "1h1m0s approve second")
		if s.Err == nil || !slices.Equal(notBegun(s), []string{"b", "c"}) {
			t.Errorf("%+v", s)
		}
		// The pause has passed. An approval is asked for once, also if the wave fails then.
		w.fails["c"] = true
		w.run(t.Context(), f, true)
		w.happened("0s approve second", "0s create b", "0s create c")
		w.fails = nil
		w.run(t.Context(), f, false)
		w.happened("0s create c")
	})
}

func TestWhatHasChangedIsDoneAndApprovedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		second := wave("second", "b")
		second.Approval = true
		f := &fleet.Fleet{Waves: []*fleet.Wave{wave("first", "a"), second}}
		w.fails["b"] = true
		w.run(t.Context(), f, true)
		w.config, w.fails = "2", nil
		w.run(t.Context(), f, true)
		w.happened("0s create a", "1m0s approve second", "1m0s create b")
	})
}

func TestAnInterruptEndsTheCommandsAndBeginsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		f := &fleet.Fleet{Waves: []*fleet.Wave{wave("first", "a", "b", "c"), wave("second", "d")}}
		ctx, interrupt := context.WithCancel(t.Context())
		time.AfterFunc(90*time.Second, interrupt)
		s := w.run(ctx, f, false)
		w.happened("0s create a", "0s create b", "1m0s create c")
		if s.Err != nil || s.Red != "" || !slices.Equal(notBegun(s), []string{"d"}) ||
			time.Since(w.began) != 91*time.Second {
			t.Errorf("%+v after %v", s, time.Since(w.began))
		}
		w.run(t.Context(), f, false)
		w.happened("0s create c", "1m0s create d")
	})
}

func TestAStoreThatIsAwayStopsTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.away = 30 * time.Second
		f := &fleet.Fleet{Waves: []*fleet.Wave{wave("first", "a"), wave("second", "b")}}
		s := w.run(t.Context(), f, false)
		w.happened("0s create a")
		if s.Err == nil {
			t.Errorf("%+v", s)
		}
	})
}

func TestAClusterThatWasBegunAnewIsNotDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		f := &fleet.Fleet{Waves: []*fleet.Wave{wave("first", "a", "b")}}
		w.run(t.Context(), f, false)
		w.did = append(w.did, event.Event{Kind: event.ClusterStarted, Cluster: "a"}) // and castle was killed
		w.run(t.Context(), f, false)
		w.happened("0s create a")
	})
}

// A wave that has passed with an earlier configuration passes with a later one only when it has soaked anew.
func TestAWaveSoaksAnewWithAnotherConfiguration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		f := &fleet.Fleet{Waves: []*fleet.Wave{wave("canary", "a"), wave("rest", "b")}}
		f.Waves[0].Soak = time.Hour
		w.fails["b"] = true
		w.run(t.Context(), f, true)
		w.fails["b"], w.config, w.closes["a"] = false, "2", 10*time.Minute
		w.run(t.Context(), f, true)
		if s := w.run(t.Context(), f, true); s.Red != "canary" {
			t.Errorf("%+v went on: %q", s, w.log)
		}
	})
}
