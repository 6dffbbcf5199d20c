package main

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// screens are the commands of a real terminal, which tmux draws:
//
//	screen 80x24 castle create blue  opens it and runs a command line of the shell
//	resize 40x24                     changes its size
//	keys text Enter                  presses keys, by tmux' names, or types text
//	[!] shows pattern                waits until the screen matches, or does not
//	colours                          writes the screen with its colours to the file colours
//
// After shows, the file screen has the screen and everything that has scrolled off it.
func screens() map[string]func(*testscript.TestScript, bool, []string) {
	return map[string]func(*testscript.TestScript, bool, []string){"screen": openScreen,
		"resize": resizeScreen, "keys": keys, "shows": shows, "colours": colours}
}

// tmux runs a command of the script's own tmux, and returns its output.
func tmux(ts *testscript.TestScript, args ...string) string {
	own := []string{"-S", ts.Getenv(socket), "-f", "/dev/null", "-u"}
	cmd := exec.Command("tmux", append(own, args...)...)
	cmd.Dir = ts.MkAbs(".")
	if args[0] == "new-session" {
		cmd.Env = environ(ts)
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		ts.Fatalf("tmux %s: %v\n%s", args[0], err, out)
	}
	return string(out)
}

// socket is the variable with the socket of the script's tmux.
const socket = "SCREEN_SOCKET"

func openScreen(ts *testscript.TestScript, neg bool, args []string) {
	width, height, ok := strings.Cut(append(args, "")[0], "x")
	if neg || !ok || len(args) < 2 {
		ts.Fatalf("usage: screen WIDTHxHEIGHT command...")
	}
	line := strings.Join(args[1:], " ") + "; echo exit $?; exec cat"
	// A server passes on the environment of its start: each screen has its own.
	own, err := os.MkdirTemp(ts.Getenv("WORK"), ".tmux")
	ts.Check(err)
	ts.Setenv(socket, own+"/socket")
	ts.Defer(func() {
		ts.Setenv(socket, own+"/socket")
		tmux(ts, "kill-server")
	})
	tmux(ts, "new-session", "-d", "-x", width, "-y", height, line)
}

func resizeScreen(ts *testscript.TestScript, neg bool, args []string) {
	width, height, ok := strings.Cut(append(args, "")[0], "x")
	if neg || !ok || len(args) != 1 {
		ts.Fatalf("usage: resize WIDTHxHEIGHT")
	}
	tmux(ts, "resize-window", "-x", width, "-y", height)
}

func keys(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: keys key...")
	}
	tmux(ts, append([]string{"send-keys", "--"}, args...)...)
}

func shows(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: [!] shows pattern")
	}
	pattern, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	var screen string
	if !eventually(patience, 50*time.Millisecond, func() bool {
		screen = strings.TrimRight(tmux(ts, "capture-pane", "-p"), "\n") + "\n"
		return pattern.MatchString(screen) != neg
	}) {
		ts.Fatalf("the screen shows\n%s", screen)
	}
	screen = tmux(ts, "capture-pane", "-p", "-S", "-")
	ts.Check(os.WriteFile(ts.MkAbs("screen"), []byte(screen), 0o600))
}

func colours(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: colours")
	}
	ts.Check(os.WriteFile(ts.MkAbs("colours"), []byte(tmux(ts, "capture-pane", "-p", "-e")), 0o600))
}
