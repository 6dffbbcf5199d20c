package process

import (
	"slices"
	"strings"
)

// Getenv returns a variable of an environment such as os.Environ returns it, empty
// where it is not set. Of equal names the last one counts, as in exec.Cmd.
func Getenv(environ []string, name string) string {
	for _, entry := range slices.Backward(environ) {
		if k, value, ok := strings.Cut(entry, "="); ok && k == name {
			return value
		}
	}
	return ""
}

// Quote makes one word of s for a POSIX shell.
func Quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
