// Package terraform runs Terraform for one stage: a root module's private copy,
// its init, plans and applies. It is the only user of terraform-exec and
// hc-install.
//
// Terraform hears of nothing that it should not: it gets an allow-listed
// environment, inputs come from a file that only their owner can read, and no
// secret is ever an argument. What it says is read from its JSON stream, from
// which come the changes of each resource, a log in plain text and errors that
// name the resource, the file and the line.
//
// Cancelling a context sends Terraform one SIGINT, after which it finishes what
// it has begun and writes its state. The error of a cancelled command is the
// context's cause and never terraform-exec's: that one is lost or, for a command
// cancelled while it starts, panics when it is printed. Such a command is also
// left running without anybody waiting for it, which would make two writers;
// that is why each cancelled command ends with a look at the process table.
package terraform

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/hashicorp/terraform-exec/tfexec"
)

// Root is one stage's root module in its work directory. It runs one command at
// a time; only Kill and Doing may be called beside another method.
type Root struct {
	Binary
	Dir         string           // the work directory, absolute: holds the module's copy
	StatePath   string           // absolute
	DataDir     string           // Terraform's own files for this root; Dir/.terraform if empty
	PluginCache string           // shared by all roots, absolute; used by Init only
	Env         []string         // the caller's environment; only what is allow-listed reaches Terraform
	Run         string           // the run's id: CASTLE_RUN of every child
	Log         io.Writer        // hears everything that Terraform says, as text; the caller masks it
	OnResource  func(Change)     // hears what happens to each resource, one call at a time
	OnError     func(Diagnostic) // hears each error of a command that has JSON, likewise
	Parallelism int              // Terraform's own default if zero
	WaitDelay   time.Duration    // from cancellation until Terraform is killed; 30 minutes if zero

	mu    sync.Mutex
	doing doing
}

// A VM that is being cloned may need long until it can be left: killing
// Terraform before that loses it.
const defaultWaitDelay = 30 * time.Minute

func (r *Root) dataDir() string {
	if r.DataDir != "" {
		return r.DataDir
	}
	return filepath.Join(r.Dir, ".terraform")
}

// command runs one Terraform command. Each gets a tfexec.Terraform of its own:
// the JSON commands leave their writer behind, which would then hear the
// secrets of the next one.
func (r *Root) command(ctx context.Context, name string, extra map[string]string, do func(*tfexec.Terraform, *stream) error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	tf, err := r.executor(extra)
	if err != nil {
		return err
	}
	r.doing.begin(name)
	defer r.doing.end()
	s := &stream{log: r.Log, onResource: r.heard, onError: r.OnError}
	tf.SetStderr(s.stderr())
	// terraform-exec ties the child's life to the thread that starts it; this
	// keeps that thread alive until the child has ended.
	runtime.LockOSThread()
	err = do(tf, s)
	runtime.UnlockOSThread()
	s.flush()
	tidied := r.tidy()
	if ctx.Err() != nil {
		if unclean := errors.Join(r.settle(), tidied); unclean != nil {
			return errors.Join(context.Cause(ctx), unclean)
		}
		return context.Cause(ctx)
	}
	if err != nil {
		return errors.Join(s.failure(name, err, r.rescued()), tidied)
	}
	return tidied
}

// heard takes what a command says of a resource.
func (r *Root) heard(c Change) {
	r.doing.see(c)
	if r.OnResource != nil {
		r.OnResource(c)
	}
}

func (r *Root) executor(extra map[string]string) (*tfexec.Terraform, error) {
	tf, err := tfexec.NewTerraform(r.Dir, r.Path)
	if err != nil {
		return nil, err
	}
	env := r.environment()
	for k, v := range extra {
		env[k] = v
	}
	if err := tf.SetEnv(env); err != nil {
		return nil, err
	}
	delay := r.WaitDelay
	if delay == 0 {
		delay = defaultWaitDelay
	}
	return tf, tf.SetWaitDelay(delay)
}

// tidy makes private what Terraform writes with the umask that it finds.
func (r *Root) tidy() error {
	var errs []error
	for _, path := range []string{r.StatePath, r.StatePath + ".backup", r.rescuePath(), r.planPath()} {
		if err := os.Chmod(path, 0o600); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// rescuePath is where Terraform leaves a state that it could not write to StatePath.
func (r *Root) rescuePath() string { return filepath.Join(r.Dir, "errored.tfstate") }

func (r *Root) rescued() string {
	if _, err := os.Stat(r.rescuePath()); err != nil {
		return ""
	}
	return r.rescuePath()
}

func (r *Root) planPath() string { return filepath.Join(r.Dir, "castle.tfplan") }
