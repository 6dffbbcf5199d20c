package main

import (
	"os"
	"strings"
	"testing"
	"time"
)

func TestTimesOfAProcessWhoseNameHasSpaces(t *testing.T) {
	var got measure
	err := got.parseTimes([]byte("12 (a b) c) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 20 0 9 0"))
	const ms = time.Millisecond
	if want := (measure{Own: 230 * ms, Kernel: 120 * ms, Children: 270 * ms}); err != nil || got != want {
		t.Errorf("got %+v (%v), want %+v", got, err, want)
	}
	if got.parseTimes([]byte("12 (a) S 1")) == nil {
		t.Error("a short line has been accepted")
	}
}

func TestPeakOfMemory(t *testing.T) {
	if got := parsePeak([]byte("Name:\tx\nVmPeak:\t   9 kB\nVmHWM:\t    2048 kB\n")); got != 2<<20 {
		t.Errorf("got %d, want %d", got, 2<<20)
	}
}

func TestThePeakOfAShortProcess(t *testing.T) {
	// It grows to 16 MB, and ends soon after that. The last reading may be from before the last step.
	grow := "v=0123456789abcdef; i=0; while [ $i -lt 20 ]; do v=$v$v; i=$((i+1)); done"
	m, _, err := run(t.Context(), t.TempDir(), os.Environ(), "sh", "-c", grow)
	if err != nil {
		t.Fatal(err)
	}
	if m.Memory < 4<<20 {
		t.Errorf("the peak is %d bytes", m.Memory)
	}
}

// busy is a shell loop that takes a few ticks of CPU time.
const busy = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done"

func TestOwnAndChildrensCPUAreSeparate(t *testing.T) {
	own, _, err := run(t.Context(), t.TempDir(), os.Environ(), "sh", "-c", busy)
	if err != nil {
		t.Fatal(err)
	}
	if own.Own == 0 || own.Children > own.Own || own.Wall == 0 || own.Memory == 0 {
		t.Errorf("a busy process: %+v", own)
	}
	nested, _, err := run(t.Context(), t.TempDir(), os.Environ(), "sh", "-c", "sh -c '"+busy+"'; true")
	if err != nil {
		t.Fatal(err)
	}
	if nested.Children == 0 || nested.Own > nested.Children {
		t.Errorf("a process with a busy child: %+v", nested)
	}
}

func TestAFailedCommandIsShownWithItsOutput(t *testing.T) {
	_, _, err := run(t.Context(), t.TempDir(), os.Environ(), "sh", "-c", "echo reason >&2; exit 3")
	for _, want := range []string{"reason", "exit status 3"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %q", err, want)
		}
	}
}
