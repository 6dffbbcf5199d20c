package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/klog/v2"

	"github.com/ephemeral-castle/castle/internal/castle"
)

func TestWhatCountsAsAnInterruptOfItsOwn(t *testing.T) {
	type signal struct {
		after time.Duration // the one before
		sig   os.Signal
		want  bool
	}
	const instant, second = time.Millisecond, time.Second
	for name, signals := range map[string][]signal{
		"three by hand":                {{0, os.Interrupt, true}, {second, os.Interrupt, true}, {second, os.Interrupt, true}},
		"two of timeout":               {{0, os.Interrupt, true}, {instant, os.Interrupt, false}},
		"a wrapper that translates":    {{0, os.Interrupt, true}, {instant, syscall.SIGTERM, false}},
		"a key that is held down":      {{0, os.Interrupt, true}, {400 * instant, os.Interrupt, false}, {400 * instant, os.Interrupt, true}},
		"another right after a double": {{0, os.Interrupt, true}, {instant, os.Interrupt, false}, {gesture, os.Interrupt, true}},
		"a terminal that is closed":    {{0, syscall.SIGHUP, true}, {second, syscall.SIGHUP, false}, {second, syscall.SIGHUP, false}, {second, syscall.SIGTERM, true}},
	} {
		t.Run(name, func(t *testing.T) {
			var counted interrupts
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

func TestKubernetesClientWritesNothingBetweenCastlesLines(t *testing.T) {
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
	if said, err := io.ReadAll(read); code != 0 || err != nil || len(said) > 0 {
		t.Errorf("exit code %d, %v: %q", code, err, said)
	}
}

func TestTwoSignalsAreOneHoweverLongTheAnswerTakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		signals, answered := make(chan os.Signal, 3), 0
		go hear(signals, func(times int) {
			answered = times
			time.Sleep(2 * gesture)
		})
		signals <- syscall.SIGTERM
		synctest.Wait()
		signals <- syscall.SIGTERM
		close(signals)
		time.Sleep(5 * gesture)
		if answered != 1 {
			t.Errorf("answered as %d interrupts", answered)
		}
	})
}

func TestNobodyWhoReadsKeepsNoSignalBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		read := make(chan struct{})
		promptly(func() { <-read })
		close(read)
		synctest.Wait()
	})
}

func TestExitCodes(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{errors.New("no"), 1},
		{&castle.UsageError{Message: "no"}, 2},
		{fmt.Errorf("open: %w", &castle.ConfigError{}), 2},
		{&unconfirmedError{"no"}, 3},
		{exitError(17), 17},
	} {
		if got := exitCode(c.err); got != c.want {
			t.Errorf("%v: got %d, want %d", c.err, got, c.want)
		}
	}
}

func TestEveryJoinedErrorIsExplainedOnce(t *testing.T) {
	var b strings.Builder
	a := &app{stderr: &b}
	one := errors.New("stage one: no")
	a.explain(errors.Join(one, errors.Join(errors.New("stage two: no"), one)))
	if got, want := b.String(), "castle: stage one: no\ncastle: stage two: no\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestTheLabIsAnExecutableFileOnPath(t *testing.T) {
	folder, plain, good := t.TempDir(), t.TempDir(), t.TempDir()
	if err := os.Mkdir(filepath.Join(folder, labName), 0o755); err != nil {
		t.Fatal(err)
	}
	for dir, mode := range map[string]os.FileMode{plain: 0o644, good: 0o755} {
		if err := os.WriteFile(filepath.Join(dir, labName), nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	got, err := findLab(strings.Join([]string{folder, plain, good}, ":"))
	if err != nil || got != filepath.Join(good, labName) {
		t.Errorf("got %s, %v", got, err)
	}
	var usage *castle.UsageError
	if _, err := findLab(strings.Join([]string{folder, plain}, ":")); !errors.As(err, &usage) {
		t.Errorf("without one: %v", err)
	}
}
