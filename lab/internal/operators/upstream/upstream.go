// Package upstream runs real controllers in the lab, in place of the doubles: Flux's and MetalLB's.
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
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/ephemeral-castle/castle/lab/internal/operators/cluster"
)

// Folder is where the programs are, beside castle-lab.
const Folder = "controllers"

// Releases are the programs with the releases that lab/flux and lab/metallb build.
func Releases() map[string]string {
	return map[string]string{"source-controller": "v1.9.4", "kustomize-controller": "v1.9.4",
		"helm-controller": "v1.6.4", metalLB: "v0.15.2"}
}

// charts are those whose CustomResourceDefinitions are in Folder, in a file each.
func charts() []string { return []string{"flux2", "metallb"} }

// Is reports whether a user agent is that of a controller.
func Is(userAgent string) bool {
	name, _, _ := strings.Cut(userAgent, "/")
	return Releases()[name] != ""
}

// Built reports whether a folder has all programs.
func Built(folder string) bool {
	_, err := Definitions(folder)
	for name := range Releases() {
		_, missing := os.Stat(filepath.Join(folder, name))
		err = errors.Join(err, missing)
	}
	return err == nil
}

// Definitions reads the real CustomResourceDefinitions in a folder, by chart.
func Definitions(folder string) (map[string][]byte, error) {
	all, errs := map[string][]byte{}, []error(nil)
	for _, chart := range charts() {
		text, err := os.ReadFile(filepath.Join(folder, chart+".yaml"))
		all[chart], errs = text, append(errs, err)
	}
	return all, errors.Join(errs...)
}

// Options say where the programs are and where they store things.
type Options struct {
	Folder     string // with the programs
	Dir        string // of what they store
	Logs       string // for a file of each
	Kubeconfig string
	Routes     Routes
	// Without are the programs that doubles stand for.
	Without []string
}

// Routes is the API server's way to the processes behind Pods: see operators.Routes.
type Routes interface {
	Register(workload, address string)
	Unregister(workload string)
}

// Controllers are those of one cluster.
type Controllers struct {
	w         *cluster.View
	o         Options
	storage   string // host and port of the source-controller's artifacts
	webhook   string // MetalLB's, as the API server knows it; empty while it does not run
	processes map[string]*process
}

// New returns the controllers; none runs yet.
func New(w *cluster.View, o Options) *Controllers {
	return &Controllers{w: w, o: o, processes: map[string]*process{}}
}

// Look starts the controllers whose Deployments are ready, and stops the others.
func (f *Controllers) Look(ctx context.Context) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(Releases())) {
		if slices.Contains(f.o.Without, name) {
			continue
		}
		deployment, err := f.w.Deployment(ctx, name)
		if err != nil {
			return err
		}
		running := f.processes[name]
		switch {
		case running != nil && (deployment == nil || f.changed(deployment, running)):
			running.stop()
			delete(f.processes, name)
		case deployment != nil && running == nil:
			p, err := f.start(deployment)
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
		if name == metalLB {
			errs = append(errs, f.serve(ctx, deployment))
		}
	}
	return errors.Join(errs...)
}

// changed reports whether a Deployment has other arguments than its process, which the next look starts anew.
func (f *Controllers) changed(d *appsv1.Deployment, running *process) bool {
	args, err := f.arguments(d)
	return err == nil && !slices.Equal(args, running.command.Args[1:])
}

// Close stops all controllers.
func (f *Controllers) Close() {
	for _, p := range f.processes {
		p.stop()
	}
	clear(f.processes)
}

// backOff is a kubelet's shortest pause between two starts of a container that ends.
const backOff = 10 * time.Second

func (f *Controllers) start(d *appsv1.Deployment) (*process, error) {
	if err := errors.Join(os.MkdirAll(f.o.Dir, 0o700), os.MkdirAll(f.o.Logs, 0o700)); err != nil {
		return nil, err
	}
	args, err := f.arguments(d)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(f.o.Logs, d.Name+".log")
	log, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	c := exec.Command(filepath.Join(f.o.Folder, d.Name), args...)
	c.Env = append(os.Environ(), "KUBECONFIG="+f.o.Kubeconfig, "RUNTIME_NAMESPACE="+d.Namespace)
	if d.Name == metalLB {
		c.Env = append(c.Env, "TMPDIR="+f.o.Dir, "METALLB_NAMESPACE="+d.Namespace)
	}
	c.Stdout, c.Stderr = log, log
	return run(c, log)
}

// requeue is the time after which Flux looks at a dependency again that is not ready.
const requeue = 30 * time.Second

// replaced are the flags of Flux's Deployments in whose place the lab has its own, or which lead to a Service
// that nobody serves.
var replaced = regexp.MustCompile(`^--(metrics-addr|health-addr|log-encoding|requeue-dependency|storage-.*|` +
	`events-addr|enable-leader-election)(=|$)`)

// arguments are the flags of a controller: those of its Deployment, but for what differs in the lab.
func (f *Controllers) arguments(d *appsv1.Deployment) ([]string, error) {
	if d.Name == metalLB {
		args := []string{"--port=0", "--cert-dir=" + f.certificates(),
			"--ml-secret-name=metallb-memberlist", "--deployment=" + d.Name}
		for _, c := range d.Spec.Template.Spec.Containers {
			args = append(args, c.Args...)
		}
		return args, os.MkdirAll(f.certificates(), 0o700)
	}
	pause := requeue
	if f.w.Speed() > 0 {
		pause = max(time.Second, time.Duration(float64(requeue)/f.w.Speed()))
	}
	args := []string{"--metrics-addr=0", "--health-addr=0", "--log-encoding=json",
		"--requeue-dependency=" + pause.String()}
	for _, c := range d.Spec.Template.Spec.Containers {
		args = append(args, slices.DeleteFunc(slices.Clone(c.Args), func(a string) bool {
			return replaced.MatchString(a)
		})...)
	}
	if d.Name != "source-controller" {
		return args, nil
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
	store := filepath.Join(f.o.Dir, "artifacts")
	return append(args, "--storage-path="+store, "--storage-addr="+f.storage,
		"--storage-adv-addr="+f.storage), os.MkdirAll(store, 0o700)
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
