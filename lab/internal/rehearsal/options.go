// Package rehearsal creates and destroys a cluster in the lab, with its real configuration. It has two
// halves, which run in two processes.
//
// Outside, Run reads the configuration, collects the names in it, prepares everything that would
// otherwise come from a network, and enters a namespace. Inside, Main proves that it is inside,
// starts the datacenter and runs castle, or the given command, as a user would.
//
// One work directory holds everything: state, plugin cache, provider mirror, logs, home. Mounts cover the
// repository, with a copy of the configuration that may be edited, and the real state directory. The kernel
// thus keeps a rehearsal away from the real files.
package rehearsal

import (
	"fmt"
	"strconv"
)

// FastSpeed is the speed that "fast" stands for: waits that a person would
// notice are gone, and what races, still does.
const FastSpeed = 50

// fromRegistry is the value of Options.Providers for the real providers.
const fromRegistry = "registry"

// Options are the arguments and flags of a rehearsal.
type Options struct {
	Cluster   string
	With      string // another cluster of the repository, which the command may create, too; or empty
	Directory string // -C
	Speed     float64
	Providers string // stand-in or registry
	Faults    []string
	Sources   []string // URL=DIR
	Charts    string   // folder with the user's charts, or empty
	// Controllers is real or standin; empty: real where they are built.
	Controllers string
	Keep        bool
	Report      string   // file for the report, or empty
	Command     []string // what runs inside, or empty for the whole round
	Edit        string   // file with the patch of the configuration that is rolled out, or empty
	Flags       []string // of that rollout
	Environ     []string `json:"-"` // the user's own, credentials and all: it is not written down
}

// ParseSpeed reads --speed.
func ParseSpeed(text string) (float64, error) {
	if text == "fast" {
		return FastSpeed, nil
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || n < 0.1 || n > 10000 {
		return 0, fmt.Errorf("--speed %q: must be fast or a number from 0.1 to 10000", text)
	}
	return n, nil
}

// UsageError is an invalid argument or flag of a rehearsal.
type UsageError struct{ Err error }

func (e *UsageError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *UsageError) Unwrap() error { return e.Err }
