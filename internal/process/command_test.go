package process_test

import (
	"testing"

	"github.com/ephemeral-castle/castle/internal/process"
)

func TestQuoteMakesOneWordForAShell(t *testing.T) {
	for in, want := range map[string]string{
		"/home/a/state": "'/home/a/state'",
		"it's $HOME":    `'it'\''s $HOME'`,
	} {
		if got := process.Quote(in); got != want {
			t.Errorf("%q: got %s, want %s", in, got, want)
		}
	}
}

func TestGetenvReturnsTheLastValueOfAName(t *testing.T) {
	environ := []string{"PATH=/bin", "HOME=/root", "PATH=/usr/bin", "EMPTY=", "ODD", "PATHS=/x"}
	for name, want := range map[string]string{"PATH": "/usr/bin", "HOME": "/root", "EMPTY": "", "ODD": "",
		"NONE": ""} {
		if got := process.Getenv(environ, name); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}
