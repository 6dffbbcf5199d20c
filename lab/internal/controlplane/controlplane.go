// Package controlplane runs Kubernetes and the operators in a process of their own. They can thus
// end at once, like a cluster whose machines lose power. The package holds both sides: Start and Recover
// are the lab's, Main the process's.
//
// The process reads its order, with all private keys, from stdin. It writes one line to stdout when
// the API answers and Talos' bootstrap manifests are applied. The components log to a file. The
// process ends with the lab, even if the lab is killed.
package controlplane

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	client "k8s.io/client-go/kubernetes"

	"github.com/ephemeral-castle/castle/lab/internal/kubernetes"
	"github.com/ephemeral-castle/castle/lab/internal/operators"
	"github.com/ephemeral-castle/castle/lab/internal/operators/cilium"
	"github.com/ephemeral-castle/castle/lab/internal/operators/upstream"
)

// Arg is the argument with which Start calls this program to run Main.
const Arg = "control-plane"

const ready = "ready"

// Order describes the control plane to run.
type Order struct {
	Kubernetes kubernetes.Config
	Operators  operators.Faults
	Speed      float64 // of operators and Pods
	CoreDNS    bool    // whether Talos brings its own

	WithoutProxy bool // Talos brings no kube-proxy
	KubePrism    int  // the port of Talos' load balancer for the API on each machine; 0: it is off
	Manifests    []string
	AgeKey       string // opens what SOPS has encrypted

	// Controllers is the folder with Flux's real controllers, and Logs where they log; empty for doubles.
	Controllers, Logs string

	// Restore, if it is set, makes etcd's data from a snapshot, and nothing runs.
	Restore *Restore

	// Turn is called when an operator's fault begins or ends; it may be nil.
	Turn func(operators.Turn) `json:"-"`
}

// Process is a control plane in a process of its own.
type Process struct {
	Client client.Interface
	REST   *rest.Config // an administrator's

	kill func() error
	done chan struct{}
}

// Start returns when the API answers. The process ends when ctx does.
func Start(ctx context.Context, o Order) (*Process, error) {
	options, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.Kubernetes.Dir, 0o700); err != nil {
		return nil, err
	}
	path := filepath.Join(o.Kubernetes.Dir, "kubernetes.log")
	log, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	c := exec.CommandContext(ctx, "/proc/self/exe", Arg)
	c.Stdin, c.Stderr = strings.NewReader(string(options)), log
	// Its own group: an interrupt is castle's business, and a cluster outlives it.
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	// Not StdoutPipe: the process may end, and be waited for, before its line is read.
	out, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	c.Stdout = in
	p := &Process{done: make(chan struct{})}
	if err := errors.Join(p.start(c), in.Close()); err != nil {
		return nil, errors.Join(err, out.Close())
	}
	lines := bufio.NewReader(out)
	line, err := lines.ReadString('\n')
	if err != nil || strings.TrimSpace(line) != ready {
		p.Kill()
		return nil, errors.Join(fmt.Errorf("kubernetes: %s: see %s", strings.TrimSpace(line), path),
			out.Close())
	}
	go listen(out, lines, o.Turn)
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(o.Kubernetes.Dir, "kubeconfig"))
	if err != nil {
		p.Kill()
		return nil, err
	}
	config.QPS, config.Burst = 200, 400
	p.REST = config
	if p.Client, err = client.NewForConfig(config); err != nil {
		p.Kill()
		return nil, err
	}
	return p, nil
}

// start runs the command from a thread that lasts as long as it: the kernel
// ends a child with the thread that made it.
func (p *Process) start(c *exec.Cmd) error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := c.Start()
		started <- err
		if err == nil {
			c.Wait() //nolint:errcheck // it is always killed, by whom does not matter
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	p.kill = c.Process.Kill
	return nil
}

// listen forwards the output of the process until the process ends.
func listen(out io.Closer, lines io.Reader, turn func(operators.Turn)) {
	defer out.Close() //nolint:errcheck // it was read to its end
	for decoder := json.NewDecoder(lines); ; {
		var t operators.Turn
		if decoder.Decode(&t) != nil {
			return
		}
		if turn != nil {
			turn(t)
		}
	}
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Kill ends the process at once and waits until it is gone.
func (p *Process) Kill() {
	if err := p.kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return
	}
	<-p.done
}

// Main is the process: it runs what stdin orders until it is killed.
func Main(ctx context.Context, stdin io.Reader, stdout io.Writer) error {
	err := run(ctx, stdin, stdout)
	// The parent process waits for the line and reads the reason in its place.
	fmt.Fprintln(stdout, err)
	return err
}

func run(ctx context.Context, stdin io.Reader, stdout io.Writer) error {
	var o Order
	if err := json.NewDecoder(stdin).Decode(&o); err != nil {
		return fmt.Errorf("order: %w", err)
	}
	if o.Restore != nil {
		return o.Restore.run(o.Kubernetes.Dir, stdout)
	}
	asks := &operators.Asks{}
	own := filepath.Base(os.Args[0]) + "/" // as client-go calls the controllers and operators of this process
	o.Kubernetes.Asked = func(userAgent, url string) {
		if userAgent == "castle" {
			asks.Add(time.Now(), url)
		}
		if !strings.HasPrefix(userAgent, own) && !upstream.Is(userAgent) {
			asks.Outside(time.Now())
		}
	}
	o.Kubernetes.Logs = o.Logs
	cluster, err := kubernetes.Start(ctx, o.Kubernetes)
	if err != nil {
		return err
	}
	if err := applyBootstrap(ctx, cluster, o); err != nil {
		return fmt.Errorf("bootstrap manifests: %w", err)
	}
	if _, err := fmt.Fprintln(stdout, ready); err != nil {
		return err
	}
	var mu sync.Mutex
	encoder := json.NewEncoder(stdout)
	go operators.Run(ctx, operators.Config{ //nolint:errcheck // it ends with the process
		REST: cluster.REST, Routes: cluster.Routes, Faults: o.Operators, Speed: o.Speed, Asks: asks,
		AgeKey: o.AgeKey, Dir: o.Kubernetes.Dir,
		Controllers: o.Controllers, Logs: o.Logs,
		Machines: cilium.Machines{KubePrism: o.KubePrism, KubeProxy: !o.WithoutProxy},
		HTTP:     &http.Client{Timeout: 10 * time.Second},
		Turn: func(t operators.Turn) {
			mu.Lock()
			defer mu.Unlock()
			encoder.Encode(t) //nolint:errcheck // whoever does not listen any more will kill it
		},
		Log: func(operator string, err error) { fmt.Fprintf(os.Stderr, "operator %s: %v\n", operator, err) },
	})
	return cluster.Wait()
}
