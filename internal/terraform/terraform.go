// Package terraform runs Terraform for one stage: a root module's private copy, its init, plans and applies.
// It is the only user of terraform-exec and hc-install. Terraform gets an allow-listed environment, its
// inputs come from a private file, and no secret is ever an argument. Its JSON stream yields the changes of
// each resource, a log and errors that name the resource, the file and the line. Cancelling a context sends
// Terraform one SIGINT, after which it finishes what it has begun and writes its state. The error of a
// cancelled command is the context's cause. terraform-exec does not wait for a command that is cancelled
// while it starts, which would make two writers, so castle looks at the process table then.
package terraform

import (
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/terraform-exec/tfexec"

	"github.com/ephemeral-castle/castle/internal/ownfile"
	"github.com/ephemeral-castle/castle/internal/process"
)

// Root is one stage's root module in its work directory. It runs one command at
// a time; only Kill and Operations may be called beside another method.
type Root struct {
	Binary      Binary
	Dir         string       // the work directory, absolute: holds the module's copy
	StatePath   string       // absolute
	PluginCache string       // shared by all roots, absolute; used by Init only
	Env         []string     // the caller's environment; only what is allow-listed reaches Terraform
	Run         string       // the run's id: CASTLE_RUN of every child
	Providers   ProviderLock // shared with other roots; nil: init chooses providers for this root alone
	Log         io.Writer    // gets Terraform's whole output as text; the caller masks it
	// Identities are those of objects, by type; Helm's and Kubernetes' are known.
	Identities map[string]Identity
	// OnWrite is called before a command that may write the state; an error stops the command.
	OnWrite    func(context.Context) error
	OnResource func(Change)     // called for each step of a resource's change, one call at a time
	OnError    func(Diagnostic) // likewise for each error of a command that has JSON
	OnWarning  func(Diagnostic) // likewise for each warning
	// Hide masks the texts of errors before they are shortened; nil hides nothing.
	Hide func(string) string
	// OnConnect is called before a command that connects the providers; an error stops the command.
	OnConnect func(context.Context) error
	// OnCommand is called before each command. It returns further variables for the command's environment;
	// end is called with the command's error, nil if it had none.
	OnCommand func(command string) (environ map[string]string, end func(error))
	WaitDelay time.Duration // from cancellation until Terraform is killed; 30 minutes if zero

	mu        sync.Mutex
	last      *tfexec.Terraform // of the last command
	operation operation
	servers   servers
}

const (
	// A VM that is being cloned may need long until it can be left: killing Terraform before that loses it.
	defaultWaitDelay = 30 * time.Minute

	settleGrace  = 5 * time.Second // for a Terraform that was interrupted while it started
	pollInterval = 20 * time.Millisecond
)

// workdir is the part of a root that its files need.
type workdir struct{ dir, statePath string }

func (r *Root) workdir() workdir { return workdir{r.Dir, r.StatePath} }

// dataDir holds Terraform's own files for this root.
func (r *Root) dataDir() string { return filepath.Join(r.Dir, ".terraform") }

// command runs one Terraform command.
func (r *Root) command(
	ctx context.Context, name string, extra map[string]string, do func(*tfexec.Terraform, *stream) error,
) (err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	more, end := r.onCommand(name)
	defer func() { end(err) }()
	maps.Copy(more, extra)
	if err := r.connect(ctx, name); err != nil {
		return err
	}
	tf, err := r.executor(more)
	if err != nil {
		return err
	}
	defer r.operation.begin(name)()
	s := &stream{root: r}
	if usesProviders(name) {
		if s.running, err = r.servers.reattach(ctx); err != nil {
			return err
		}
	}
	tf.SetStderr(s.stderr())
	// terraform-exec ties the child's life to the thread that starts it; this
	// keeps that thread alive until the child has ended.
	runtime.LockOSThread()
	err = do(tf, s)
	runtime.UnlockOSThread()
	s.flush()
	chmodErr := r.workdir().makePrivate()
	switch {
	case ctx.Err() != nil:
		if unclean := errors.Join(r.settle(), chmodErr); unclean != nil {
			return errors.Join(context.Cause(ctx), unclean)
		}
		return context.Cause(ctx)
	case err != nil:
		err = r.mismatch(ctx, s.failure(name, err))
	}
	return errors.Join(err, chmodErr)
}

// onCommand calls OnCommand. The variables are the caller's.
func (r *Root) onCommand(name string) (environ map[string]string, end func(error)) {
	if r.OnCommand == nil {
		return map[string]string{}, func(error) {}
	}
	more, end := r.OnCommand(name)
	environ = map[string]string{}
	maps.Copy(environ, more)
	return environ, end
}

// connect checks the work directory, and calls OnConnect unless the command certainly connects no provider.
func (r *Root) connect(ctx context.Context, command string) error {
	if err := r.checkLinks(); err != nil {
		return err
	}
	verb, _, _ := strings.Cut(command, " ")
	if r.OnConnect == nil || verb == "show" || !usesProviders(verb) {
		return nil
	}
	return r.OnConnect(ctx)
}

// usesProviders reports whether a command may start providers; show does so for their schemas.
func usesProviders(command string) bool {
	return !slices.Contains([]string{"version", "init", "state", "state rm", "taint", "output"}, command)
}

func (r *Root) hide(text string) string {
	if r.Hide == nil {
		return text
	}
	return r.Hide(text)
}

// executor returns the root's tfexec.Terraform for the next command. A root has one, because each asks
// Terraform for its version first. The JSON commands leave their writer behind, which must not get the
// secrets of the next one.
func (r *Root) executor(extra map[string]string) (tf *tfexec.Terraform, err error) {
	program, leader, err := process.Leader(r.Binary.Path)
	if err != nil {
		return nil, err
	}
	if tf = r.last; tf == nil || tf.WorkingDir() != r.Dir || tf.ExecPath() != program {
		if tf, err = tfexec.NewTerraform(r.Dir, program); err != nil {
			return nil, err
		}
		r.last = tf
	}
	tf.SetStdout(io.Discard)
	tf.SetStderr(io.Discard)
	env := r.environment()
	maps.Copy(env, extra)
	maps.Copy(env, leader)
	if err := tf.SetEnv(env); err != nil {
		return nil, err
	}
	return tf, tf.SetWaitDelay(cmp.Or(r.WaitDelay, defaultWaitDelay))
}

// beforeWrite announces a command that may write the state.
func (r *Root) beforeWrite(ctx context.Context) error {
	if r.OnWrite == nil {
		return nil
	}
	return r.OnWrite(ctx)
}

// Kill ends at once every process of this root: Terraform, its providers and their
// children. It is the last resort: their work is lost.
func (r *Root) Kill(ctx context.Context) error {
	_, err := process.EndRun(ctx, r.Run, "TF_DATA_DIR="+r.dataDir())
	return err
}

// processes finds the processes of this root's command: terraform-exec does not report a pid.
func (r *Root) processes() ([]process.Process, error) {
	all, err := process.OfRun(r.Run, "TF_DATA_DIR="+r.dataDir())
	return slices.DeleteFunc(all, r.servers.own), err
}

// settle returns when no process of this root is left. After a cancelled command
// that is so at once, unless it was cancelled in the instant in which it started.
// It was interrupted before it could begin anything, so a short grace is enough.
func (r *Root) settle() error {
	for end := time.Now().Add(settleGrace); time.Now().Before(end); time.Sleep(pollInterval) {
		if running, err := r.processes(); err != nil || len(running) == 0 {
			return err
		}
	}
	return r.Kill(context.Background())
}

// makePrivate changes the mode of the files that Terraform writes with its umask.
func (w workdir) makePrivate() error {
	var errs []error
	for _, path := range []string{w.statePath, w.statePath + ".backup", w.erroredPath(), w.planPath()} {
		if err := ownfile.Chmod(path, 0o600); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// erroredPath is where Terraform leaves a state that it could not write.
func (w workdir) erroredPath() string { return filepath.Join(w.dir, "errored.tfstate") }

func (w workdir) planPath() string { return filepath.Join(w.dir, "castle.tfplan") }
