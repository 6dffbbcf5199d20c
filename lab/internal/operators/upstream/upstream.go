// Package upstream runs the real controllers of Flux in the lab, in place of the doubles of package flux.
//
// They are programs beside castle-lab, which `make real` builds from unmodified sources. Each runs as a
// process while its Deployment has a ready replica, with the lab's API server and the flags that a Pod of it
// has, but for ports and storage. The Pods themselves remain kwok's. Flux's own waits for dependencies run
// at the lab's speed; the intervals in the objects do not.
package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/ephemeral-castle/castle/lab/internal/operators/cluster"
)

// Folder is where the programs are, beside castle-lab.
const Folder = "flux"

// Definitions is the file in Folder with the CustomResourceDefinitions of the controllers.
const Definitions = "crds.yaml"

// Controllers are the programs with the releases that lab/flux builds.
func Controllers() map[string]string {
	return map[string]string{"source-controller": "v1.9.4", "kustomize-controller": "v1.9.4",
		"helm-controller": "v1.6.4"}
}

// Is reports whether a user agent is that of a controller.
func Is(userAgent string) bool {
	name, _, _ := strings.Cut(userAgent, "/")
	return Controllers()[name] != ""
}

// Built reports whether a folder has all programs and their definitions.
func Built(folder string) bool {
	for _, name := range append(slices.Collect(maps.Keys(Controllers())), Definitions) {
		if _, err := os.Stat(filepath.Join(folder, name)); err != nil {
			return false
		}
	}
	return true
}

// Flux are the controllers of one cluster.
type Flux struct {
	w          *cluster.View
	folder     string // with the programs
	dir        string // of what they store
	logs       string
	kubeconfig string
	storage    string // host and port of the source-controller's artifacts
	processes  map[string]*process
}

// New returns the controllers in a folder. They store in dir and write a file each in logs.
func New(w *cluster.View, folder, dir, logs, kubeconfig string) *Flux {
	return &Flux{w: w, folder: folder, dir: dir, logs: logs, kubeconfig: kubeconfig,
		processes: map[string]*process{}}
}

// Look starts the controllers whose Deployments are ready, and stops the others.
func (f *Flux) Look(ctx context.Context) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(Controllers())) {
		deployment, err := f.w.Deployment(ctx, name)
		if err != nil {
			return err
		}
		running := f.processes[name]
		switch {
		case deployment == nil && running != nil:
			running.stop()
			delete(f.processes, name)
		case deployment != nil && running == nil:
			p, err := f.start(name, deployment.Namespace)
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", name, err))
				continue
			}
			f.processes[name] = p
		case deployment != nil && running.ended():
			errs = append(errs, fmt.Errorf("%s ended: %w", name, running.err))
			if time.Since(running.began) > backOff {
				delete(f.processes, name) // the next look starts it again, as a kubelet does
			}
		}
	}
	return errors.Join(errs...)
}

// Close stops all controllers.
func (f *Flux) Close() {
	for _, p := range f.processes {
		p.stop()
	}
	clear(f.processes)
}

// backOff is a kubelet's shortest pause between two starts of a container that ends.
const backOff = 10 * time.Second

// requeue is the time after which Flux looks at a dependency again that is not ready.
const requeue = 30 * time.Second

func (f *Flux) start(name, namespace string) (*process, error) {
	store := filepath.Join(f.dir, "artifacts")
	if err := errors.Join(os.MkdirAll(store, 0o700), os.MkdirAll(f.logs, 0o700)); err != nil {
		return nil, err
	}
	if f.storage == "" {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		if f.storage = l.Addr().String(); l.Close() != nil {
			return nil, errors.New("no free port")
		}
	}
	pause := requeue
	if f.w.Speed() > 0 {
		pause = max(time.Second, time.Duration(float64(requeue)/f.w.Speed()))
	}
	args := []string{"--metrics-addr=0", "--health-addr=0", "--log-encoding=console",
		"--requeue-dependency=" + pause.String()}
	if name == "source-controller" {
		args = append(args, "--storage-path="+store, "--storage-addr="+f.storage,
			"--storage-adv-addr="+f.storage)
	}
	log, err := os.OpenFile(filepath.Join(f.logs, name+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	c := exec.Command(filepath.Join(f.folder, name), args...)
	c.Env = append(os.Environ(), "KUBECONFIG="+f.kubeconfig, "RUNTIME_NAMESPACE="+namespace)
	c.Stdout, c.Stderr = log, log
	return run(c, log)
}

// process is a controller that runs, or has ended.
type process struct {
	command *exec.Cmd
	began   time.Time
	done    chan struct{}
	err     error // why it ended
}

// run starts a command that ends with this process, even if that is killed. The kernel ends a child with the
// thread that made it, so the thread stays.
func run(c *exec.Cmd, log io.Closer) (*process, error) {
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	p := &process{command: c, began: time.Now(), done: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer close(p.done)
		err := c.Start()
		started <- err
		if err == nil {
			p.err = errors.Join(c.Wait(), log.Close())
		}
	}()
	return p, <-started
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// grace is the terminationGracePeriodSeconds of the controllers' Pods.
const grace = 10 * time.Second

func (p *process) stop() {
	p.command.Process.Signal(syscall.SIGTERM) //nolint:errcheck // it has ended
	select {
	case <-p.done:
	case <-time.After(grace):
		p.command.Process.Kill() //nolint:errcheck // likewise
		<-p.done
	}
}
