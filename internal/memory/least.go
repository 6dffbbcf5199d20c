package memory

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// The least that castle runs with. With less, Go ends a program in the middle of anything, with a page of its
// own state and the exit code 2. Go reserves address space long before it uses it.
const leastSpace, leastData = 2 << 30, 256 << 20

var _ = require()

func require() bool {
	space, data := syscall.Rlimit{Cur: leastSpace}, syscall.Rlimit{Cur: leastData}
	_, _ = syscall.Getrlimit(syscall.RLIMIT_AS, &space), syscall.Getrlimit(syscall.RLIMIT_DATA, &data)
	group, _ := os.ReadFile("/sys/fs/cgroup/memory.max") //nolint:errcheck // there may be none
	if problem := tooLittle(space.Cur, data.Cur, string(group)); problem != "" {
		fmt.Fprintln(os.Stderr, "castle: "+problem)
		os.Exit(1)
	}
	return true
}

// tooLittle names the limit that is too low, and what to do; "" if none is.
func tooLittle(space, data uint64, group string) string {
	contained, err := strconv.ParseUint(strings.TrimSpace(group), 10, 64)
	const text = "too little memory: %s is %d MiB, and castle requires %d MiB; raise it"
	switch {
	case space < leastSpace:
		return fmt.Sprintf(text, "the limit of the address space (ulimit -v)", space>>20, leastSpace>>20)
	case data < leastData:
		return fmt.Sprintf(text, "the limit of the data segment (ulimit -d)", data>>20, leastData>>20)
	case err == nil && contained < leastData:
		return fmt.Sprintf(text, "the memory limit of the container", contained>>20, leastData>>20)
	}
	return ""
}
