package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/ephemeral-castle/castle/internal/cli"
	"github.com/ephemeral-castle/castle/internal/secret"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"castle": func() {
			os.Exit(cli.Main("1.2.3", os.Args[1:], os.Stdin, keepEvents(os.Args[1:]), os.Stderr))
		},
		"castle-parse":     parse,
		"clock-ahead":      clockAhead,
		"killed-at-change": killedAtChange,
		"killed-at-write":  killedAtWrite,
		"somebody":         somebody,
		"unprivileged":     unprivileged,
	})
}

// TestScript runs every behaviour that needs no Terraform: castle finds a fake
// one on PATH that records its arguments and fails on request.
func TestScript(t *testing.T) {
	if signal.Ignored(syscall.SIGHUP) { // by nohup, and castle would ignore it likewise
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	run(t, "testdata/script", func(env *testscript.Env) error {
		env.Values[visitedKey{}] = newVisited()
		env.Values[begunKey{}] = map[string]*begun{}
		env.Values[datacenterKey{}] = new(*datacenter)
		env.Values[infisicalKey{}] = newInfisical()
		env.Values[collectedKey{}] = &collected{}
		env.Values[machinesKey{}] = new(*machines)
		if err := parsing(env); err != nil {
			return err
		}
		return fakeOnPath(env)
	}, map[string]func(*testscript.TestScript, bool, []string){"site": site, "answers": answers,
		"asked": asked, "collector": startCollector, "spans": spans, "examples": examples,
		"statefiles": stateFiles, "identities": identities, "infisical": infisical, "proxmox": proxmox,
		"talos": talos, "forge": forgePlan, "rerecord": rerecord},
		interruptible(), screens())
}

// helper builds a program beside the castle of the scripts, where they find it. It has no race detector,
// which would cost it a tenth of a second with each call. Inside a rehearsal, the test outside has built it.
func helper(name, source string, inputs ...string) func() error {
	return sync.OnceValue(func() error {
		for _, input := range append(inputs, source+"/main.go") { // of the cached result of a test
			if _, err := os.ReadFile(input); err != nil {
				return err
			}
		}
		if _, err := exec.LookPath(name); err == nil {
			return nil
		}
		castle, err := exec.LookPath("castle")
		if err != nil {
			return err
		}
		build := exec.Command("go", "build", "-o", filepath.Join(filepath.Dir(castle), name), source)
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		return runHelper(build)
	})
}

// runHelper runs a program, and returns its output with its error.
func runHelper(cmd *exec.Cmd) error {
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", filepath.Base(cmd.Path), err, out)
	}
	return nil
}

var (
	fakeTerraform = helper("fake-terraform", "../../internal/emulator/terraform")
	schematest    = helper("schematest", "../../internal/event/schematest", "../../docs/events.schema.json",
		"../../docs/plan.schema.json")
)

// fakeOnPath lets castle find the fake Terraform.
func fakeOnPath(env *testscript.Env) error {
	if err := fakeTerraform(); err != nil {
		return err
	}
	bin := filepath.Join(env.WorkDir, ".fake")
	if err := os.Mkdir(bin, 0o755); err != nil {
		return err
	}
	env.Setenv("PATH", bin+string(filepath.ListSeparator)+env.Getenv("PATH"))
	env.Setenv("CASTLE_TERRAFORM", "") // also in make integration TERRAFORM=tofu
	// A script has a file of its own, which it may change.
	return os.WriteFile(filepath.Join(bin, "terraform"),
		[]byte("#!/bin/sh\nexec fake-terraform \"$@\"\n"), 0o755)
}

// race has the race detector wait no whole second at each process' end.
const race = "atexit_sleep_ms=20"

// run runs the scripts of a folder with the commands that they all know, and more.
func run(t *testing.T, dir string, setup func(*testscript.Env) error,
	more ...map[string]func(*testscript.TestScript, bool, []string)) {
	commands := map[string]func(*testscript.TestScript, bool, []string){
		"exits": exits, "mode": mode, "holds": holds}
	for _, m := range more {
		maps.Copy(commands, m)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 dir,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       os.Getenv("CASTLE_UPDATE_SCRIPTS") != "",
		Setup: func(env *testscript.Env) error {
			home := filepath.Join(env.WorkDir, "home")
			if err := os.Mkdir(home, 0o700); err != nil {
				return err
			}
			env.Setenv("HOME", home)
			env.Setenv("GORACE", race)
			env.Setenv("GOGC", "400") // thousands of short processes with small heaps
			env.Setenv("CASTLE_STATE_DIR", filepath.Join(env.WorkDir, "state"))
			if program := os.Getenv("CASTLE_TERRAFORM"); program != "" { // make integration TERRAFORM=tofu
				env.Setenv("CASTLE_TERRAFORM", program)
			}
			if err := checkEvents(env, dir); err != nil {
				return err
			}
			return setup(env)
		},
		Cmds: commands,
		Condition: func(name string) (bool, error) {
			if name == "bash-completion" {
				_, err := os.Stat("/usr/share/bash-completion/bash_completion")
				return err == nil, nil
			}
			if name == "shells" { // make test has installed them
				return os.Getenv("CASTLE_TEST_SHELLS") != "", nil
			}
			if name == "tofu" {
				return os.Getenv("CASTLE_TERRAFORM") == "tofu", nil
			}
			if name == "root" {
				return os.Getuid() == 0, nil
			}
			if name == "trace" {
				return exec.Command("killed-at-write", "1", "true").Run().Error() == "exit status 1", nil
			}
			return false, fmt.Errorf("unknown condition %q", name)
		},
	})
}

// check ends a helper program of the scripts.
func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "\nError:", err)
		os.Exit(1)
	}
}

// eventually checks a condition at an interval until it holds, and reports
// whether it did within the limit.
func eventually(limit, interval time.Duration, holds func() bool) bool {
	end, tick := time.After(limit), time.NewTicker(interval)
	defer tick.Stop()
	for !holds() {
		select {
		case <-end:
			return holds()
		case <-tick.C:
		}
	}
	return true
}

// exits runs a program and asserts its exit code: exits 2 castle create blue.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits code program args...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// mode asserts a file's permissions: mode 600 path.
func mode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: mode octal path")
	}
	want, err := strconv.ParseUint(args[0], 8, 32)
	ts.Check(err)
	info, err := os.Stat(ts.MkAbs(args[1]))
	ts.Check(err)
	if got := info.Mode().Perm(); got != os.FileMode(want) {
		ts.Fatalf("%s is %o, want %o", args[1], got, want)
	}
}

// holds asserts that each of these secrets is in a file below a folder, as it is or encoded: holds path
// secret... With ! it asserts that none is.
func holds(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: holds path secret...")
	}
	for _, value := range args[1:] {
		known, found := &secret.Masker{}, ""
		known.Add(value)
		ts.Check(filepath.WalkDir(ts.MkAbs(args[0]), func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			content, err := os.ReadFile(path)
			if known.Hide(string(content)) != string(content) {
				found = path
			}
			return err
		}))
		if neg != (found == "") {
			ts.Fatalf("%q: found in %q", value, found)
		}
	}
}
