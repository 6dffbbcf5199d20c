package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ephemeral-castle/castle/internal/platform/proxmox"
	"github.com/ephemeral-castle/castle/internal/terraform"
)

func locked() error {
	return During("apply", &terraform.Error{Command: "apply", Diagnostics: []terraform.Diagnostic{
		{Summary: "can't lock file '/var/lock/qemu-server/lock-421.conf' - got timeout"},
	}})
}

// retryAfter retries an attempt that takes some time and returns the answers in turn, the last of them
// for ever.
func retryAfter(
	ctx context.Context,
	takes time.Duration,
	answers ...error,
) (announced []retry, count int, err error) {
	err = retrying(ctx, func(again bool) error {
		if again != (count > 0) {
			return errors.New("the first try is not distinguished from the others")
		}
		<-time.After(takes)
		count++
		return answers[min(count, len(answers))-1]
	}, func(r retry) { announced = append(announced, r) })
	return announced, count, err
}

func TestATransientErrorIsRetriedUntilSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		announced, count, err := retryAfter(t.Context(), time.Second, locked(), locked(), nil)
		if err != nil || count != 3 || len(announced) != 2 {
			t.Fatalf("%d tries, %d told, %v", count, len(announced), err)
		}
		if got := announced[0].String(); got != "1 of 5 in 2s: apply: can't lock file "+
			"'/var/lock/qemu-server/lock-421.conf' - got timeout" {
			t.Errorf("told: %s", got)
		}
	})
}

func TestAPermanentErrorIsNotRetried(t *testing.T) {
	lasts := errors.New("the rack is on fire")
	announced, count, err := retryAfter(t.Context(), 0, lasts)
	if !errors.Is(err, lasts) || err.Error() != lasts.Error() || count != 1 || len(announced) != 0 {
		t.Errorf("%d tries, %d told, %v", count, len(announced), err)
	}
	synctest.Test(t, func(t *testing.T) { // not even after a transient error
		if _, count, err := retryAfter(t.Context(), 0, locked(), lasts); count != 2 ||
			err.Error() != lasts.Error() {
			t.Errorf("%d tries, %v", count, err)
		}
	})
}

func TestRetriesEndAfterTheLargestNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		announced, count, err := retryAfter(t.Context(), time.Second, locked())
		if count != 6 || len(announced) != 5 {
			t.Errorf("%d tries, %d told", count, len(announced))
		}
		pause, spent := 2*time.Second, 6*time.Second
		for _, r := range announced {
			spent += r.pause
			if r.pause < pause*8/10 || r.pause > pause*12/10 {
				t.Errorf("pause %d is %s, want about %s", r.number, r.pause, pause)
			}
			pause = min(2*pause, 30*time.Second)
		}
		if step := (*StepError)(nil); !errors.As(err, &step) ||
			!strings.HasSuffix(err.Error(),
				"got timeout; tried 6 times in "+spent.Round(time.Second).String()) {
			t.Errorf("got %v", err)
		}
	})
}

func TestRetriesEndAtATimeAfterTheFirstFailure(t *testing.T) {
	for takes, want := range map[time.Duration]int{
		time.Hour:       2, // a second attempt follows however long the first took
		2 * time.Minute: 4, // the fourth begins within the five minutes
	} {
		synctest.Test(t, func(t *testing.T) {
			if _, count, err := retryAfter(t.Context(), takes, locked()); count != want ||
				!strings.Contains(err.Error(), fmt.Sprintf("tried %d times in ", want)) {
				t.Errorf("%s each: %d tries, want %d: %v", takes, count, want, err)
			}
		})
	}
}

func TestNoRetryFollowsAnInterrupt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // during a try
		ctx, stop := context.WithCancelCause(t.Context())
		count := 0
		err := retrying(ctx, func(bool) error {
			count++
			stop(context.Canceled)
			return locked()
		}, func(retry) { t.Error("another try was announced") })
		if count != 1 || err == nil {
			t.Errorf("%d tries, %v", count, err)
		}
	})
	synctest.Test(t, func(t *testing.T) { // between two
		ctx, stop := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, stop)
		began := time.Now()
		_, count, err := retryAfter(ctx, 0, locked())
		if took := time.Since(began); count != 1 || !errors.Is(err, context.Canceled) || took != time.Second {
			t.Errorf("%d tries, %v after %s", count, err, took)
		}
	})
}

func TestATimeoutBetweenRetriesNamesTheirCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithTimeoutCause(t.Context(), time.Second, TimeoutError{time.Second})
		defer stop()
		_, _, err := retryAfter(ctx, 0, locked())
		if err == nil ||
			!strings.HasPrefix(err.Error(),
				"timed out after 1s, before retry 1 of 5: apply: can't lock file") {
			t.Errorf("got %v", err)
		}
	})
}

func TestUnansweredPreflightIsRetriedAndARefusalIsNot(t *testing.T) {
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	for err, want := range map[error]bool{
		NoAnswer("vm_ids.free", fmt.Errorf("proxmox: get version: %w", refused)):               true,
		NoAnswer("vm_ids.free", fmt.Errorf("proxmox: get version: %w", io.ErrUnexpectedEOF)):   true,
		NoAnswer("vm_ids.free", &proxmox.Error{Code: 595, Text: "No route to host"}):           true,
		NoAnswer("vm_ids.free", &proxmox.Error{Code: 503, Text: "Service Unavailable"}):        true,
		NoAnswer("vm_ids.free", &proxmox.Error{Code: 500, Text: "can't lock file '/x.conf'"}):  true,
		NoAnswer("vm_ids.free", &proxmox.Error{Code: 500, Text: "unable to read the storage"}): false,
		NoAnswer("vm_ids.free", &proxmox.Error{Code: 401, Text: "Authentication failed!"}):     false,
		error(&PreflightError{Preflight: "vm_ids.free"}):                                       false,
	} {
		if got := terraform.Transient(err); got != want {
			t.Errorf("%v: %v, want %v", err, got, want)
		}
	}
}
