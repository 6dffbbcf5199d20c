package process

import "golang.org/x/sys/unix"

// NoCoreDumps keeps the kernel from writing the memory of this process and of its children to a file, or to
// a program that stores it. The limit 1 is less than any core file, and the only one that the kernel also
// applies to a program in core_pattern.
func NoCoreDumps() error {
	err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: 1, Max: 1})
	if err != nil { // the hard limit is 0 already
		err = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})
	}
	return err
}
