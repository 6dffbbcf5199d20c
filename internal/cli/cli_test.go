package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ephemeral-castle/castle/internal/castle"
)

func TestTheFirstInterruptStopsTheRunAndTheSecondSaysWhatAThirdWouldLose(t *testing.T) {
	r, w := io.Pipe()
	said := bufio.NewScanner(r)
	a := &app{stderr: w}
	ctx, stop := a.interruptible(t.Context())
	defer stop()
	for _, want := range []string{"interrupted; Terraform finishes", "a third interrupt kills it"} {
		if err := syscall.Kill(os.Getpid(), syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		if !said.Scan() || !strings.Contains(said.Text(), want) {
			t.Fatalf("said %q, want %q", said.Text(), want)
		}
		<-ctx.Done()
	}
	err := context.Cause(ctx)
	if !errors.Is(err, context.Canceled) || exitCode(err) != castle.ExitInterrupted {
		t.Errorf("the run ends with %v, exit code %d", err, exitCode(err))
	}
}

func TestAClosedTerminalIsOneInterruptHoweverOftenItIsTold(t *testing.T) {
	if signal.Ignored(syscall.SIGHUP) {
		t.Skip("started by nohup")
	}
	r, w := io.Pipe()
	said := bufio.NewScanner(r)
	a := &app{stderr: w}
	ctx, stop := a.interruptible(t.Context())
	defer stop()
	for i, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGHUP, syscall.SIGHUP, syscall.SIGINT} {
		if err := syscall.Kill(os.Getpid(), sig); err != nil {
			t.Fatal(err)
		}
		want := map[int]string{0: "interrupted; Terraform finishes", 3: "a third interrupt kills it"}[i]
		if want != "" && (!said.Scan() || !strings.Contains(said.Text(), want)) {
			t.Fatalf("%v: said %q, want %q", sig, said.Text(), want)
		}
		<-ctx.Done()
	}
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

func TestAShellReadsAQuotedWordAsItWas(t *testing.T) {
	for in, want := range map[string]string{
		"/home/a/state": "'/home/a/state'",
		"it's $HOME":    `'it'\''s $HOME'`,
	} {
		if got := quote(in); got != want {
			t.Errorf("%q: got %s, want %s", in, got, want)
		}
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
