// Package warm starts Terraform providers once for several Terraform commands. Terraform itself starts each
// provider up to four times for one command. It can also use one that runs already: it gets the address in
// TF_REATTACH_PROVIDERS, the mode in which providers run their acceptance tests. The servers belong to one
// stage in one run. Terraform configures them, sends them its Stop when it is interrupted, and leaves them
// running; the owner of Servers ends them.
package warm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"golang.org/x/sys/unix"

	"github.com/ephemeral-castle/castle/internal/process"
)

// Provider is one provider's executable.
type Provider struct {
	Source string // registry.terraform.io/hashicorp/helm
	Path   string
	Verify func() error // checks the executable before it is started
}

// Options is what all providers of a stage share.
type Options struct {
	Dir     string    // the folder that they run in
	Env     []string  // their whole environment
	Sockets string    // a folder for their sockets; created, for this user alone
	Log     io.Writer // gets why a provider does not start or crashes; calls come one at a time
}

// Address is where Terraform finds a running provider.
type Address struct {
	Protocol int // Terraform's plugin protocol: 5 or 6
	PID      int
	Socket   string
}

// Servers are the running providers of one stage.
type Servers struct {
	ready chan struct{} // closed when each has started or failed
	stop  context.CancelFunc
	ended sync.WaitGroup

	writing sync.Mutex
	log     io.Writer

	mu      sync.Mutex
	started []*plugin.Client
	running map[string]*plugin.Client // by source
	crashed []string                  // sources
}

// notStarted is the log's line for a provider and an error.
const notStarted = "castle could not start provider %s for all commands of the stage, so Terraform does: %v"

// startTimeout is Terraform's own for a provider.
const startTimeout = time.Minute

// handshake is Terraform's with its providers, as their SDKs have it in common.
var handshake = plugin.HandshakeConfig{
	ProtocolVersion:  4,
	MagicCookieKey:   "TF_PLUGIN_MAGIC_COOKIE",
	MagicCookieValue: "d602bf8f470bc67ca7faa0386276bbdd4330efaf76d1a219cb4d6991ca9872b2",
}

// Start starts providers side by side and returns at once. One that cannot be started is logged and has no
// address: Terraform starts it then, and reports why it fails.
func Start(all []Provider, o Options) *Servers {
	ctx, stop := context.WithCancel(context.Background())
	s := &Servers{
		ready: make(chan struct{}), stop: stop, running: map[string]*plugin.Client{}, log: o.Log,
	}
	if err := privateDir(o.Sockets); err != nil {
		s.logf("castle could not start providers for all commands of the stage, so Terraform does: %v", err)
		all = nil
	}
	var starting sync.WaitGroup
	for _, p := range all {
		starting.Add(1)
		s.ended.Go(func() { s.serve(ctx, p, o, starting.Done) })
	}
	go func() {
		starting.Wait()
		close(s.ready)
	}()
	return s
}

// privateDir creates a folder for this user alone. It refuses one that somebody else has made.
func privateDir(path string) error {
	// Not through a link, and without a change of what is there: the folder above may be everybody's.
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	var info unix.Stat_t
	if err := unix.Lstat(path, &info); err != nil {
		return err
	}
	if info.Mode&unix.S_IFMT != unix.S_IFDIR || int(info.Uid) != os.Getuid() || info.Mode&0o077 != 0 {
		return fmt.Errorf("%s: not a folder of this user alone", path)
	}
	process.Hold(path)
	return nil
}

// serve runs one provider until ctx ends. Its thread stays until then: the kernel ends the provider with it.
func (s *Servers) serve(ctx context.Context, p Provider, o Options, started func()) {
	if err := p.Verify(); err != nil {
		s.logf(notStarted, p.Source, err)
		started()
		return
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.Command(p.Path)
	cmd.Dir = o.Dir
	cmd.Env = append(slices.Clone(o.Env), plugin.EnvUnixSocketDir+"="+o.Sockets)
	cmd.SysProcAttr = process.Child(syscall.SIGKILL)
	output := &lines{servers: s}
	client := plugin.NewClient(&plugin.ClientConfig{
		Cmd: cmd, SkipHostEnv: true,
		HandshakeConfig:  handshake,
		VersionedPlugins: map[int]plugin.PluginSet{5: {}, 6: {}},
		AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC},
		StartTimeout:     startTimeout,
		Logger:           hclog.NewNullLogger(),
		Stderr:           output,
	})
	s.mu.Lock()
	s.started = append(s.started, client)
	s.mu.Unlock()
	if _, err := client.Start(); err != nil {
		s.logf(notStarted, p.Source, err)
	} else {
		output.serving.Store(true)
		s.mu.Lock()
		s.running[p.Source] = client
		s.mu.Unlock()
	}
	started()
	<-ctx.Done()
	client.Kill()
}

// Addresses waits until the providers have started and returns those that run, by source. It logs ended ones.
func (s *Servers) Addresses(ctx context.Context) (map[string]Address, error) {
	select {
	case <-s.ready:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	s.dropEnded()
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[string]Address{}
	for source, client := range s.running {
		at := client.ReattachConfig()
		all[source] = Address{Protocol: client.NegotiatedVersion(), PID: at.Pid, Socket: at.Addr.String()}
	}
	return all, nil
}

// dropEnded removes the providers that have ended by themselves, and logs each.
func (s *Servers) dropEnded() {
	s.mu.Lock()
	var ended []string
	for source, client := range s.running {
		if client.Exited() {
			ended = append(ended, source)
			delete(s.running, source)
		}
	}
	slices.Sort(ended)
	s.crashed = append(s.crashed, ended...)
	s.mu.Unlock()
	for _, source := range ended {
		s.logf("provider %s has ended before its stage: it crashed or was killed. Terraform starts it from "+
			"now on", source)
	}
}

// Crashed are the sources of the providers that have ended before Close.
func (s *Servers) Crashed() []string {
	s.dropEnded()
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.crashed)
}

// PIDs are the processes of the providers, those that are starting included.
func (s *Servers) PIDs() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []int
	for _, client := range s.started {
		if pid, err := strconv.Atoi(client.ID()); err == nil {
			all = append(all, pid)
		}
	}
	return all
}

// Close ends the providers and returns when they have ended. It may be called again.
func (s *Servers) Close() {
	s.stop()
	s.ended.Wait()
}

func (s *Servers) logf(format string, args ...any) {
	s.writing.Lock()
	defer s.writing.Unlock()
	fmt.Fprintf(s.log, format+"\n", args...)
}

// lines writes whole lines of one provider's standard error to the log, so that those of two do not mix. As
// soon as the provider serves, it writes crashes only: the rest is for its developers, and
// hashicorp/kubernetes prints the content of each Secret. Terraform shows that with TF_LOG only.
type lines struct {
	servers *Servers
	rest    []byte
	serving atomic.Bool
	crashed bool
}

// Write implements io.Writer.
func (l *lines) Write(p []byte) (int, error) {
	l.rest = append(l.rest, p...)
	l.servers.writing.Lock()
	defer l.servers.writing.Unlock()
	for {
		line, rest, whole := bytes.Cut(l.rest, []byte{'\n'})
		if !whole {
			return len(p), nil
		}
		l.rest = rest
		if !l.belongs(line) {
			continue
		}
		if _, err := l.servers.log.Write(append(line, '\n')); err != nil {
			return len(p), err
		}
	}
}

// belongs reports whether a line belongs into the log.
func (l *lines) belongs(line []byte) bool {
	if bytes.HasPrefix(line, []byte(`{"@level":"`)) {
		return false
	}
	// Go begins the report of a crash so; the stacks follow.
	l.crashed = l.crashed || bytes.HasPrefix(line, []byte("panic: ")) ||
		bytes.HasPrefix(line, []byte("fatal error: "))
	return l.crashed || !l.serving.Load()
}

// Executable finds a provider's executable in its unpacked package, as Terraform does; "" without one.
func Executable(dir, name string) string {
	entries, err := os.ReadDir(dir) // sorted
	if err != nil {
		return ""
	}
	for _, e := range entries {
		prefix := "terraform-provider-" + name
		if rest, found := strings.CutPrefix(strings.ToLower(e.Name()), prefix); found &&
			!e.IsDir() && (rest == "" || strings.HasPrefix(rest, "_") || strings.HasPrefix(rest, ".")) {
			return filepath.Join(dir, e.Name())
		}
	}
	return ""
}
