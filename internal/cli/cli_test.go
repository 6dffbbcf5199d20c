package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/klog/v2"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/operation/plan"
	"github.com/ephemeral-castle/castle/internal/operation/rollout"
	"github.com/ephemeral-castle/castle/internal/operation/status"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/run/review"
	"github.com/ephemeral-castle/castle/internal/run/waiting"
	"github.com/ephemeral-castle/castle/internal/state"
)

func TestSignalsWithinTheWindowCountAsOneInterrupt(t *testing.T) {
	type signal struct {
		after time.Duration // the one before
		sig   os.Signal
		want  bool
	}
	const instant, second = time.Millisecond, time.Second
	for name, signals := range map[string][]signal{
		"three by hand": {{0, os.Interrupt, true}, {second, os.Interrupt, true},
			{second, os.Interrupt, true}},
		"two of timeout":            {{0, os.Interrupt, true}, {instant, os.Interrupt, false}},
		"a wrapper that translates": {{0, os.Interrupt, true}, {instant, syscall.SIGTERM, false}},
		"a key that is held down": {{0, os.Interrupt, true}, {400 * instant, os.Interrupt, false},
			{400 * instant, os.Interrupt, true}},
		"another right after a double": {{0, os.Interrupt, true}, {instant, os.Interrupt, false},
			{signalWindow, os.Interrupt, true}},
		"a terminal that is closed": {{0, syscall.SIGHUP, true}, {second, syscall.SIGHUP, false},
			{second, syscall.SIGHUP, false}, {second, syscall.SIGTERM, true}},
	} {
		t.Run(name, func(t *testing.T) {
			var counted interruptCounter
			now := time.Now()
			for i, s := range signals {
				now = now.Add(s.after)
				if got := counted.count(s.sig, now); got != s.want {
					t.Errorf("signal %d: counted %v, want %v", i+1, got, s.want)
				}
			}
		})
	}
}

func TestKubernetesClientLogsAreDiscarded(t *testing.T) {
	stderr := os.Stderr
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	os.Stderr = write
	code := Main("test", []string{"version"}, os.Stdin, io.Discard, io.Discard)
	klog.ErrorS(errors.New("context canceled"), "Unexpected error when reading response body")
	klog.Flush()
	os.Stderr = stderr
	if err := write.Close(); err != nil {
		t.Fatal(err)
	}
	if logged, err := io.ReadAll(read); code != 0 || err != nil || len(logged) > 0 {
		t.Errorf("exit code %d, %v: %q", code, err, logged)
	}
}

func TestSlowInterruptHandlingDoesNotSplitOneInterrupt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		signals, handled := make(chan os.Signal, 3), 0
		go dispatch(signals, func(times int) {
			handled = times
			time.Sleep(2 * signalWindow)
		})
		signals <- syscall.SIGTERM
		synctest.Wait()
		signals <- syscall.SIGTERM
		close(signals)
		time.Sleep(5 * signalWindow)
		if handled != 1 {
			t.Errorf("handled as %d interrupts", handled)
		}
	})
}

func TestBlockedStderrDoesNotDelayTheSignal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		read := make(chan struct{})
		withinSecond(func() { <-read })
		close(read)
		synctest.Wait()
	})
}

func TestExitCodeNamesTheGravestCause(t *testing.T) {
	closed := fmt.Errorf("stage metallb: %w", &waiting.GateError{Gate: "webhook.objects",
		Err: &gate.TimeoutError{}})
	broken := errors.New("stage longhorn: apply: quota exceeded")
	refused := fmt.Errorf("stage platform: %w", &run.PreflightError{Preflight: "vm_ids.free"})
	for _, c := range []struct {
		name string
		err  error
		want int
	}{
		{"nothing", nil, 0},
		{"a failed stage", broken, 1},
		{"a usage error", &cluster.UsageError{Message: "no"}, 2},
		{"a configuration error", fmt.Errorf("open: %w", &cluster.ConfigError{}), 2},
		{"a missing confirmation", &unconfirmedError{"no"}, 3},
		{"a preflight", refused, 4},
		{"a gate", closed, 5},
		{"gates checked once", &status.ClosedError{Closed: 1, Asked: 2}, 5},
		{"two gates", errors.Join(closed, closed), 5},
		{"a gate and a failed stage", errors.Join(closed, broken), 1},
		{"a gate and a preflight", errors.Join(closed, refused), 4},
		{"something left over", &run.LeftoverError{Objects: []event.OwnedObject{{Kind: "machine",
			ID: "421"}}},
			6},
		{"another run", &state.HeldError{}, 7},
		{"the user's program", exitError(17), 17},
		{"an interrupt and a failed stage", errors.Join(broken,
			fmt.Errorf("interrupted: %w", context.Canceled)), 130},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := exitCode(c.err); got != c.want {
				t.Errorf("exit code of %v is %d, want %d", c.err, got, c.want)
			}
		})
	}
}

func TestACommandThatIsRefusedAgainIsNotProposed(t *testing.T) {
	stopped := fmt.Errorf("interrupted: %w", context.Canceled)
	left := &waiting.GateError{Err: gate.Permanent(errors.New("blue-w-02 not in the configuration"))}
	for name, c := range map[string]struct {
		err    error
		resume bool
	}{
		"a failed stage":                     {errors.New("quota exceeded"), true},
		"a gate that may open":               {&waiting.GateError{Err: &gate.TimeoutError{}}, true},
		"a foreign VM":                       {&run.PreflightError{Preflight: "vm_ids.free"}, true},
		"an interrupt":                       {stopped, true},
		"a node that would be removed":       {&review.NodeError{}, false},
		"a machine that would be harmed":     {&review.HarmError{}, false},
		"an answered n":                      {&review.UnagreedError{Asked: true}, false},
		"an answered n before an interrupt":  {errors.Join(stopped, &review.UnagreedError{}), false},
		"a node that is left over":           {left, false},
		"a left-over node and another stage": {errors.Join(errors.New("quota exceeded"), left), false},
	} {
		if got := ending(c.err, "castle create blue").Resume; (got != "") != c.resume {
			t.Errorf("%s: got %q", name, got)
		}
	}
}

func TestExplainWritesEveryJoinedErrorOnce(t *testing.T) {
	var b strings.Builder
	one := errors.New("stage one: no")
	explain(&app{stderr: &b}, errors.Join(one, errors.Join(errors.New("stage two: no"), one)), "/state")
	if got, want := b.String(), "castle: stage one: no\ncastle: stage two: no\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestErrorsOfASummedUpRunAreNotWrittenAgain(t *testing.T) {
	var b strings.Builder
	err := errors.Join(&run.EndedError{Err: errors.Join(errors.New("stage one: no"))}, errors.New("the lock"))
	explain(&app{stderr: &b, summed: true}, err, "/state")
	if got := b.String(); got != "castle: the lock\n" {
		t.Errorf("got %q", got)
	}
}

func TestCommandLineHidesValuesOfVariables(t *testing.T) {
	for want, args := range map[string][]string{
		"castle create blue --only keys":        {"create", "blue", "--only", "keys"},
		"castle create blue --var … --var=… -v": {"create", "blue", "--var", "a=b", "--var=c=d", "-v"},
		"castle -C 'my clusters' create blue":   {"-C", "my clusters", "create", "blue"},
	} {
		if got := commandLine(args); got != want {
			t.Errorf("%q: got %s, want %s", args, got, want)
		}
	}
}

func TestFindLabTakesAnExecutableFileOnPath(t *testing.T) {
	folder, plain, good := t.TempDir(), t.TempDir(), t.TempDir()
	if err := os.Mkdir(filepath.Join(folder, labName), 0o755); err != nil {
		t.Fatal(err)
	}
	for dir, mode := range map[string]os.FileMode{plain: 0o644, good: 0o755} {
		if err := os.WriteFile(filepath.Join(dir, labName), nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", strings.Join([]string{folder, plain, good}, ":"))
	got, err := findLab()
	if err != nil || got != filepath.Join(good, labName) {
		t.Errorf("got %s, %v", got, err)
	}
	t.Setenv("PATH", strings.Join([]string{folder, plain}, ":"))
	if _, err := findLab(); !is[*cluster.UsageError](err) {
		t.Errorf("without one: %v", err)
	}
}

func TestClosedGatesWithOneReasonHaveOneLine(t *testing.T) {
	ago := func(d time.Duration) time.Time { return time.Now().Add(-d) }
	gates := []status.GateStatus{
		{Name: "crd.kinds", Open: true},
		{Name: "webhook.mutator", Reason: "its CA has expired", Recorded: true, Since: ago(time.Minute)},
		{Name: "condition.nodes", Reason: "no Node exists yet", Recorded: true, Since: ago(20 * time.Second)},
		{Name: "condition.disks", Reason: "no Node exists yet", Recorded: true, Since: ago(30 * time.Second)},
		{Name: "workload.csi", Reason: "0 of 1 available"},
	}
	failed := status.StageStatus{State: status.Failed, Reason: "gate condition.nodes: late", Gates: gates}
	reason, below := stageRemarks(failed)
	want := []string{
		"webhook.mutator: its CA has expired (closed for 60s)",
		"condition.nodes, condition.disks: no Node exists yet (closed for 30s)",
		"workload.csi: 0 of 1 available",
	}
	if reason != "" || !slices.Equal(below, want) {
		t.Errorf("got %q, %q", reason, below)
	}
}

func TestPlanNamesSomeOfManyOutputsInOneLine(t *testing.T) {
	p := &plan.Plan{Stages: []*plan.Stage{
		{Name: "machines", Layer: "platform", State: review.Waits,
			Missing: []string{"secrets.a", "secrets.b"}},
		{Name: "pool", Layer: "networking", State: review.Waits,
			Missing: []string{"secrets.b", "platform.c", "platform.d", "platform.e"}},
	}}
	const start = "Not planned: platform/machines, networking/pool; they need outputs that are known after " +
		"apply: "
	for verbose, want := range map[bool]string{
		false: "secrets.a, secrets.b, platform.c, and 2 more (-v)\n",
		true:  "secrets.a, secrets.b, platform.c, platform.d, platform.e\n",
	} {
		if got := planWaits(p, verbose); got != start+want {
			t.Errorf("got %q", got)
		}
	}
}

func TestPlanShowsTheStepsOfARollout(t *testing.T) {
	step := &rollout.Step{Machine: "worker-01", Action: rollout.Change,
		Changes: []string{"memory 4096 → 8192"}, Restarts: true, Drains: true, UsualSeconds: 90}
	known := &rollout.List{Command: "castle rollout blue", Steps: []*rollout.Step{step},
		Obstacles: []string{"worker-01: too small"}}
	const steps = "castle rollout blue changes one machine after the other:\n" +
		" 1. worker-01 changes: memory 4096 → 8192; it is drained, and restarts (usually 1m30s)\n" +
		"about 1m30s\nobstacle: worker-01: too small\n"
	unknown := &rollout.List{Command: "castle rollout blue", Unknown: "the API is down: timeout\nsecond line"}
	const why = "castle rollout blue changes machines that run; its steps are unknown: the API is down: " +
		"timeout; later: castle rollout blue --dry-run\n"
	for want, list := range map[string]*rollout.List{steps: known, why: unknown} {
		var text, markdown strings.Builder
		printPlan(&text, &plan.Plan{Rollout: list}, false)
		printPlanMarkdown(&markdown, &plan.Plan{Rollout: list})
		if !strings.HasPrefix(text.String(), want) {
			t.Errorf("text: %s", text.String())
		}
		if !strings.Contains(markdown.String(), "\n\n```text\n"+want+"```\n\n<details>") {
			t.Errorf("markdown: %s", markdown.String())
		}
	}
}
