package terraform

import (
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/ephemeral-castle/castle/internal/process"
	"github.com/ephemeral-castle/castle/internal/providers"
)

// Exec runs any Terraform command in the work directory and returns Terraform's exit code. The environment
// is that of every other command; input and output are the caller's. At a terminal Terraform becomes the
// foreground job: it can prompt, and a Ctrl-C reaches Terraform only.
func (r *Root) Exec(
	ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer,
) (exitCode int, err error) {
	if err := r.beforeWrite(ctx); err != nil {
		return 0, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.connect(ctx, strings.Join(args, " ")); err != nil {
		return 0, err
	}
	command := strings.Join(args[:min(1, len(args))], "")
	defer r.operation.begin(command)()
	env, end := r.onCommand(command)
	defer func() { end(err) }()
	maps.Copy(env, r.environment())
	cmd := exec.CommandContext(ctx, r.Binary.Path, args...)
	cmd.Dir, cmd.Env = r.Dir, entries(env)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = cmp.Or(r.WaitDelay, defaultWaitDelay)
	cmd.SysProcAttr = process.Child(syscall.SIGKILL)
	tty, ours := terminal(stdin)
	if ours {
		cmd.SysProcAttr.Foreground, cmd.SysProcAttr.Ctty = true, tty
	}
	runtime.LockOSThread() // as in command
	defer runtime.UnlockOSThread()
	err = cmd.Run()
	if ours {
		err = errors.Join(err, reclaim(tty))
	}
	err = errors.Join(err, r.workdir().makePrivate())
	if ctx.Err() != nil {
		return cmd.ProcessState.ExitCode(), context.Cause(ctx)
	}
	if exit, is := errors.AsType[*exec.ExitError](err); is {
		return exit.ExitCode(), nil
	}
	return 0, err
}

// terminal returns stdin's descriptor if it is a terminal whose foreground job is this process.
func terminal(stdin io.Reader) (fd int, ours bool) {
	f, ok := stdin.(*os.File)
	if !ok {
		return 0, false
	}
	group, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCGPGRP)
	return int(f.Fd()), err == nil && group == unix.Getpgrp()
}

// reclaim makes this process the terminal's foreground job again. It must ignore the
// signal that stops a background job that does so.
func reclaim(tty int) error {
	signal.Ignore(syscall.SIGTTOU)
	defer signal.Reset(syscall.SIGTTOU)
	return unix.IoctlSetPointerInt(tty, unix.TIOCSPGRP, unix.Getpgrp())
}

// isProviders reports whether a provider reads a variable.
func isProviders(name string) bool {
	return connection.MatchString(name) || providers.ReaderOf(name) != ""
}

var (
	terraformVariables = regexp.MustCompile(`^(PATH|HOME|TMPDIR|TF_CLI_CONFIG_FILE|GOGC|GOMEMLIMIT)$`)
	// connection are the variables that change how every provider connects.
	connection = regexp.MustCompile(`^(SSL_CERT_(FILE|DIR)|(?i:(HTTP|HTTPS|NO|ALL)_PROXY))$`)
)

// ProviderEnv returns the sorted entries of environ that providers read. A fingerprint has them.
func ProviderEnv(environ []string) []string {
	var seen []string
	for _, entry := range environ {
		if name, _, _ := strings.Cut(entry, "="); isProviders(name) {
			seen = append(seen, entry)
		}
	}
	slices.Sort(seen)
	return seen
}

// environment returns the environment of every command of this root.
func (r *Root) environment() map[string]string {
	env := filter(r.Env)
	env["CASTLE_RUN"] = r.Run
	env["TF_DATA_DIR"] = r.dataDir()
	return env
}

// filter keeps the variables that Terraform and its providers get, and adds CHECKPOINT_DISABLE. KUBE* is not
// among them: a stray KUBE_HOST overrides the config_path of the providers that castle configures. Nor are
// TF_CLI_ARGS* and TF_VAR_*, which castle has resolved already.
func filter(environ []string) map[string]string {
	env := map[string]string{"CHECKPOINT_DISABLE": "1"}
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		if terraformVariables.MatchString(name) || isProviders(name) {
			env[name] = value
		}
	}
	// Terraform warns about a missing file in the output of every command.
	if file, ok := env["TF_CLI_CONFIG_FILE"]; ok {
		if _, err := os.Stat(file); err != nil {
			delete(env, "TF_CLI_CONFIG_FILE")
		}
	}
	return env
}

func entries(env map[string]string) []string {
	all := make([]string, 0, len(env))
	for name, value := range env {
		all = append(all, name+"="+value)
	}
	slices.Sort(all)
	return all
}
