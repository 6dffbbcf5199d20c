package process

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// leads is the variable that holds the program which this one becomes.
const leads = "CASTLE_LEADS"

// Leader returns a program, and variables for its environment, that run path as the leader of a process
// group, for a library that starts path itself and leaves it in castle's group. There it would get a
// terminal's Ctrl-C and castle's own signal: two, at which Terraform ends at once and loses what it does.
// On Linux the library makes the group.
func Leader(path string) (program string, environ map[string]string, err error) {
	if runtime.GOOS == "linux" {
		return path, nil, nil
	}
	program, err = os.Executable()
	return program, map[string]string{leads: path}, err
}

var _ = lead()

// lead becomes the program of the variable, if it is set: before main, so that tests do so as well.
func lead() bool {
	path, is := os.LookupEnv(leads)
	if !is {
		return false
	}
	_ = os.Unsetenv(leads) // it fails only for a name that is invalid
	err := unix.Setpgid(0, 0)
	if err == nil {
		err = unix.Exec(path, append([]string{path}, os.Args[1:]...), os.Environ()) //nolint:gosec // castle's
	}
	fmt.Fprintf(os.Stderr, "castle: %s: %v\n", path, err)
	os.Exit(1)
	return true
}
