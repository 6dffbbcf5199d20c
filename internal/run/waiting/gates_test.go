package waiting

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/secret"
)

// reports are the events of a run.
type reports []event.Event

func (r *reports) Report(e event.Event) { *r = append(*r, e) }

func TestAFailedGateIsReportedBeforeItIsExplained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen reports
		c := &cluster.Cluster{Options: cluster.Options{Reporter: &seen}, Masker: &secret.Masker{}}
		r := &run.Run{Cluster: c}
		s := &config.Stage{Name: "metallb", Layer: "networking"}
		g := &config.Gate{Label: "web", Of: s, Policy: gate.Policy{Timeout: time.Second},
			Type: gate.Type{Name: "workload"}}
		failed := false
		err := waitBound(t.Context(), r, s, g, gate.Gate{
			Name:  g.Name(),
			Check: func(context.Context) error { return errors.New("0 of 1 ready") },
			Diagnose: func(_ context.Context, last error) gate.Diagnosis {
				if e := seen[len(seen)-1]; !failed || e.Kind != event.GateFailed ||
					e.Text != "timed out after 1s; for the last 1s: 0 of 1 ready" {
					t.Errorf("before the diagnosis: failed %v, %+v", failed, e)
				}
				if last == nil || last.Error() != "0 of 1 ready" {
					t.Errorf("the last answer: %v", last)
				}
				return gate.Diagnosis{Cause: "no image"}
			},
		}, func() bool { failed = true; return true })
		if closed := (*GateError)(nil); !errors.As(err, &closed) || closed.Finding.Found.Cause != "no image" {
			t.Errorf("got %v", err)
		}
	})
}

func TestAClosedGateTellsACauseFromAConsequence(t *testing.T) {
	for kind, want := range map[gate.Kind]bool{"ca-expired": true, gate.NotFound: false, gate.Waits: false,
		"": false} {
		var seen reports
		r := &run.Run{Cluster: &cluster.Cluster{Options: cluster.Options{Reporter: &seen},
			Masker: &secret.Masker{}}}
		listener(r, event.Event{}, time.Minute).Answer(&gate.Finding{Kind: kind, Text: "closed"})
		if len(seen) != 1 || seen[0].Cause != want || seen[0].TimeoutSeconds != 60 {
			t.Errorf("%q: got %+v", kind, seen)
		}
	}
}

func TestADiagnosisThatDoesNotReturnIsAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		never := make(chan struct{})
		ctx, stop := context.WithTimeout(t.Context(), DiagnosisTime)
		defer stop()
		begun := time.Now()
		d := Bounded(ctx, func(context.Context) gate.Diagnosis {
			<-never
			return gate.Diagnosis{Cause: "late"}
		})
		if took := time.Since(begun); took > DiagnosisTime+time.Second || d.Cause != "" {
			t.Errorf("it took %s (%q)", took, d.Cause)
		}
		close(never)
	})
}

func TestAnInterruptDoesNotWaitForADiagnosis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, interrupt := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, interrupt)
		begun := time.Now()
		Bounded(ctx, func(context.Context) gate.Diagnosis {
			time.Sleep(time.Minute)
			return gate.Diagnosis{}
		})
		if took := time.Since(begun); took != time.Second {
			t.Errorf("it took %s", took)
		}
		time.Sleep(time.Minute) // until it is back after all
	})
}

func TestAStoppedDiagnosisKeepsAPartialResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		d := Bounded(ctx, func(ctx context.Context) gate.Diagnosis {
			<-ctx.Done()
			return gate.Diagnosis{Cause: "half"}
		})
		if d.Cause != "half" {
			t.Errorf("got %q", d.Cause)
		}
	})
}

// TestGatesOfAStageAreStableAtTheSameTime: each of three gates has to be open three times in a row, and no
// gate waits for another one.
func TestGatesOfAStageAreStableAtTheSameTime(t *testing.T) {
	var mu sync.Mutex
	first, third := []time.Time{}, []time.Time{}
	bind := func(name string, _ gate.Target, _ gate.Values) (gate.Gate, error) {
		answers := 0
		return gate.Gate{Name: name, Check: func(context.Context) error {
			mu.Lock()
			defer mu.Unlock()
			switch answers++; answers {
			case 1:
				first = append(first, time.Now())
			case 3:
				third = append(third, time.Now())
			}
			return nil
		}}, nil
	}
	repository := t.TempDir()
	folder := filepath.Join(repository, "clusters", "blue", "local")
	err := errors.Join(os.MkdirAll(folder, 0o700), os.WriteFile(filepath.Join(folder, "cluster.hcl"),
		[]byte(`stage "machines" { source = "platform/machines" }`), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	const threeGates = "stage {}\n" +
		"gate \"opens\" \"a\" { stable = 3 }\n" +
		"gate \"opens\" \"b\" { stable = 3 }\n" +
		"gate \"opens\" \"c\" { stable = 3 }\n"
	configured, diags := config.Load(config.Options{
		Repository: repository, Cluster: "blue", Gates: []gate.Type{{Name: "opens", New: bind}},
		Library: fstest.MapFS{
			"platform/machines/main.tf":   {},
			"platform/machines/stage.hcl": {Data: []byte(threeGates)},
		},
	})
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	synctest.Test(t, func(t *testing.T) {
		c := &cluster.Cluster{Config: configured, Masker: &secret.Masker{}}
		r := &run.Run{Cluster: c, Outputs: run.NewOutputs(c.Masker)}
		s := configured.Stages[0]
		if err := ForGates(t.Context(), r, s, s.Gates); err != nil {
			t.Fatal(err)
		}
		if len(first) != 3 || len(third) != 3 || first[2].After(third[0]) {
			t.Errorf("first answers %v, third answers %v", first, third)
		}
	})
}

func TestAStageFailsWithItsFirstGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen reports
		c := &cluster.Cluster{Options: cluster.Options{Reporter: &seen}, Masker: &secret.Masker{}}
		r := &run.Run{Cluster: c}
		s := &config.Stage{Name: "longhorn", Layer: "storage"}
		named := func(label string, timeout time.Duration) *config.Gate {
			return &config.Gate{Label: label, Of: s, Policy: gate.Policy{Timeout: timeout},
				Type: gate.Type{Name: "nodes"}}
		}
		began := time.Now()
		err := waitTogether([]*config.Gate{
			named("a", 15*time.Minute), named("b", 25*time.Second), named("c", 25*time.Second),
			named("d", 15*time.Minute),
		}, func(g *config.Gate, failed func() bool) error {
			return waitBound(t.Context(), r, s, g, gate.Gate{Name: g.Name(),
				Check: func(context.Context) error { return errors.New("0 of 1 ready") }}, failed)
		})
		closed, is := errors.AsType[*GatesError](err)
		if !is || len(closed.Failed) != 1 || len(closed.Others) != 3 || time.Since(began) != 25*time.Second {
			t.Fatalf("after %s: %v", time.Since(began), err)
		}
		if !strings.HasSuffix(err.Error(), "\ncastle no longer waits for "+closed.Others[0].Gate+", "+
			closed.Others[1].Gate+", "+closed.Others[2].Gate) {
			t.Errorf("got %v", err)
		}
		failed := 0
		for _, e := range seen {
			if e.Kind == event.GateFailed {
				failed++
			}
		}
		if failed != 1 {
			t.Errorf("%d gates are reported failed, want the first alone", failed)
		}
	})
}
