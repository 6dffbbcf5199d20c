package terraform

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestPlanHasTheChangesAndApplyUsesItOnce(t *testing.T) {
	r, home := fake(t)
	writeFile(t, filepath.Join(home, "plan.out"), applied)
	writeFile(t, filepath.Join(home, "plan.exit"), "2")
	p, err := r.Plan(t.Context(), PlanOptions{Destroy: true, Targets: []string{`a.b["c"]`}})
	if err != nil {
		t.Fatal(err)
	}
	if p.Empty || !p.Destroy || len(p.Changes) != 3 || p.Changes[1].ID != "x-1" {
		t.Errorf("got %+v", p)
	}
	if info, err := os.Stat(p.File); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("plan file: %v, %v", info, err)
	}
	if err := r.Apply(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(p.File); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the plan is still there: %v", err)
	}
	lines, _ := calls(t, home)
	want := []string{
		"plan -no-color -input=false -detailed-exitcode -lock-timeout=0s -out=" + p.File +
			" -lock=true -parallelism=10 -refresh=true -destroy -target=a.b[\"c\"] -json",
		"apply -no-color -auto-approve -input=false -lock=true -parallelism=10 -refresh=true -json " + p.File,
	}
	if !slices.Equal(lines, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
	}
}

func TestAPlanWithoutChangesIsEmpty(t *testing.T) {
	r, _ := fake(t)
	p, err := r.Plan(t.Context(), PlanOptions{})
	if err != nil || !p.Empty || len(p.Changes) != 0 {
		t.Fatalf("got %+v, %v", p, err)
	}
	if err := errors.Join(p.Discard(), p.Discard()); err != nil {
		t.Error(err)
	}
}

func TestAFailedPlanOrApplyLeavesNoPlanBehind(t *testing.T) {
	r, home := fake(t)
	writeFile(t, filepath.Join(home, "plan.exit"), "1")
	if _, err := r.Plan(t.Context(), PlanOptions{}); err == nil {
		t.Error("plan: no error")
	}
	writeFile(t, filepath.Join(home, "plan.exit"), "2")
	p, err := r.Plan(t.Context(), PlanOptions{})
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(home, "apply.exit"), "1")
	writeFile(t, filepath.Join(home, "apply.out"), stale)
	writeFile(t, filepath.Join(r.Dir, "errored.tfstate"), "{}")
	err = r.Apply(t.Context(), p)
	if !errors.Is(err, ErrStalePlan) || !strings.Contains(err.Error(), "errored.tfstate") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(r.workdir().planPath()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a plan is left: %v", err)
	}
}

func TestTheLogGetsBothOutputs(t *testing.T) {
	r, home := fake(t)
	var log bytes.Buffer
	r.Log = &log
	writeFile(t, filepath.Join(home, "apply.out"), `{"@message":"a.b: Creating...","type":"apply_start"}`)
	writeFile(t, filepath.Join(home, "apply.err"), "a provider complains\n")
	if err := r.Apply(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"a.b: Creating...\n", "a provider complains\n"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("log lacks %q: %q", want, log.String())
		}
	}
}

func TestACancelledApplyIsInterruptedOnceAndReturnsTheCause(t *testing.T) {
	r, home := fake(t)
	writeFile(t, filepath.Join(home, "apply.do"), "wait for interrupt")
	var log bytes.Buffer
	r.Log = &log
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("interrupt signal received")
	r.OnResource = func(c Change) {
		if c.Phase == Started {
			cancel(cause)
		}
	}
	if err := r.Apply(ctx, nil); err != cause {
		t.Errorf("got %v", err)
	}
	if !strings.Contains(log.String(), "Interrupted once") {
		t.Errorf("log: %s", log.String())
	}
}

// terraform-exec forgets a child whose context is cancelled while it starts, and
// its error for that cannot be printed.
func TestACommandCancelledWhileItStartsLeavesNothingRunning(t *testing.T) {
	r, home := fake(t)
	writeFile(t, filepath.Join(home, "apply.do"), "wait for interrupt")
	cause := errors.New("interrupt signal received")
	first := func() int {
		pids, err := r.processes()
		if err != nil {
			t.Error(err)
		}
		if len(pids) == 0 {
			return 0
		}
		return pids[0].PID
	}
	for range 12 {
		r.last = nil // only the first command asks for the version
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() {
			// terraform version comes first; apply starts when it has gone. The bound
			// is for a version that came and went unseen.
			bound := time.Now().Add(200 * time.Millisecond)
			version := 0
			for version == 0 && time.Now().Before(bound) {
				version = first()
			}
			for first() == version && time.Now().Before(bound) {
			}
			for wait := time.Now().Add(rand.N(2 * time.Millisecond)); time.Now().Before(wait); {
			}
			cancel(cause)
		}()
		if err := r.Apply(ctx, nil); err != cause {
			t.Fatalf("got %v", err)
		}
		if pids, err := r.processes(); err != nil || len(pids) != 0 {
			t.Fatalf("still running: %v, %v", pids, err)
		}
	}
}

func TestNothingIsStartedWhenTheContextIsCancelledAlready(t *testing.T) {
	r, home := fake(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("enough")
	cancel(cause)
	if err := r.Apply(ctx, nil); err != cause {
		t.Errorf("got %v", err)
	}
	if lines, _ := calls(t, home); len(lines) != 0 {
		t.Errorf("calls: %q", lines)
	}
}

func TestKillEndsATerraformThatIgnoresInterrupts(t *testing.T) {
	r, home := fake(t)
	writeFile(t, filepath.Join(home, "apply.do"), "ignore interrupts")
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("third interrupt")
	started := make(chan struct{})
	r.OnResource = func(Change) { close(started) }
	ended := make(chan error)
	go func() { ended <- r.Apply(ctx, nil) }()
	<-started
	cancel(cause)
	if err := r.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != cause {
		t.Errorf("got %v", err)
	}
}

func TestATerraformIsKilledAfterTheWaitDelay(t *testing.T) {
	r, home := fake(t)
	r.WaitDelay = 50 * time.Millisecond
	writeFile(t, filepath.Join(home, "apply.do"), "ignore interrupts")
	ctx, cancel := context.WithCancelCause(t.Context())
	r.OnResource = func(Change) { cancel(context.Canceled) }
	if err := r.Apply(ctx, nil); err != context.Canceled {
		t.Errorf("got %v", err)
	}
}

func TestImportReportsThatThereIsNoSuchObject(t *testing.T) {
	r, home := fake(t)
	writeFile(t, filepath.Join(home, "import.err"),
		"\nError: Cannot import non-existent remote object\n\nWhile attempting\n")
	writeFile(t, filepath.Join(home, "import.exit"), "1")
	if err := r.Import(t.Context(), `a.b["c"]`, "id-1"); !errors.Is(err, ErrNoSuchObject) {
		t.Errorf("import: %v", err)
	}
	lines, _ := calls(t, home)
	want := []string{
		`import -no-color -input=false -lock-timeout=0s -lock=true a.b["c"] id-1`,
	}
	if !slices.Equal(lines, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
	}
}
