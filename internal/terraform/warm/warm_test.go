package warm_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/ephemeral-castle/castle/internal/process"
	"github.com/ephemeral-castle/castle/internal/terraform/warm"
)

// TestMain makes this binary a provider when it is called by a provider's name.
func TestMain(m *testing.M) {
	switch name := filepath.Base(os.Args[0]); {
	case name == "terraform-provider-broken":
		fmt.Fprintln(os.Stderr, "a library is missing")
		os.Exit(1)
	case strings.HasPrefix(name, "terraform-provider-"):
		crashOnSignal()
		plugin.Serve(&plugin.ServeConfig{
			HandshakeConfig: plugin.HandshakeConfig{
				ProtocolVersion: 5, MagicCookieKey: "TF_PLUGIN_MAGIC_COOKIE",
				MagicCookieValue: "d602bf8f470bc67ca7faa0386276bbdd4330efaf76d1a219cb4d6991ca9872b2",
			},
			VersionedPlugins: map[int]plugin.PluginSet{6: {"provider": empty{}}},
			GRPCServer:       plugin.DefaultGRPCServer,
		})
	default:
		os.Exit(m.Run())
	}
}

// empty serves nothing.
type empty struct{ plugin.NetRPCUnsupportedPlugin }

func (empty) GRPCServer(*plugin.GRPCBroker, *grpc.Server) error { return nil }

func (empty) GRPCClient(context.Context, *plugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, nil
}

// crashOnSignal logs as hashicorp/kubernetes does, and crashes.
func crashOnSignal() {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGUSR1)
	go func() {
		<-asked
		log.Print("[INFO] Submitting new secret: hunter2")
		panic("the end")
	}()
}

// buffer is one for two goroutines.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *buffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *buffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func verified() error { return nil }

// provider returns a provider of this test binary.
func provider(t *testing.T, name string) warm.Provider {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "terraform-provider-"+name)
	if err := os.Symlink(self, path); err != nil {
		t.Fatal(err)
	}
	return warm.Provider{Source: "registry.terraform.io/hashicorp/" + name, Path: path, Verify: verified}
}

func options(t *testing.T, run string) (warm.Options, *buffer) {
	t.Helper()
	written := &buffer{}
	sockets, err := os.MkdirTemp("", "warm") // the folder of a test is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(sockets); err != nil {
			t.Error(err)
		}
	})
	return warm.Options{
		Dir: t.TempDir(), Env: []string{"CASTLE_RUN=" + run}, Log: written,
		Sockets: filepath.Join(sockets, "run"),
	}, written
}

func addresses(t *testing.T, s *warm.Servers) map[string]warm.Address {
	t.Helper()
	all, err := s.Addresses(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !done(); {
		if time.Now().After(end) {
			t.Fatalf("%s: not within 20 s", what)
		}
		<-time.After(5 * time.Millisecond)
	}
}

func TestProvidersListenUntilTheyAreClosed(t *testing.T) {
	o, written := options(t, "run-1")
	s := warm.Start([]warm.Provider{provider(t, "helm"), provider(t, "tls")}, o)
	defer s.Close()
	all := addresses(t, s)
	if len(all) != 2 || len(s.PIDs()) != 2 {
		t.Fatalf("got %v, %v\n%s", all, s.PIDs(), written)
	}
	for source, at := range all {
		connection, err := net.Dial("unix", at.Socket)
		if err != nil {
			t.Fatalf("%s: %v", source, err)
		}
		if err := connection.Close(); err != nil {
			t.Error(err)
		}
		if at.Protocol != 6 || filepath.Dir(at.Socket) != o.Sockets {
			t.Errorf("%s: %+v", source, at)
		}
		if group, err := syscall.Getpgid(at.PID); err != nil || group == syscall.Getpgrp() {
			t.Errorf("%s: a Ctrl-C would reach the provider: group %d, %v", source, group, err)
		}
		if dir, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", at.PID)); err != nil || dir != o.Dir {
			t.Errorf("%s: runs in %s, %v", source, dir, err)
		}
	}
	if info, err := os.Stat(o.Sockets); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("sockets: %v, %v", info, err)
	}
	if strings.Contains(written.String(), "plugin address") {
		t.Errorf("messages for developers are in the log:\n%s", written)
	}
	if running, err := process.OfRun("run-1"); err != nil || len(running) != 2 {
		t.Errorf("of the run: %v, %v", running, err)
	}
	s.Close()
	if running, err := process.OfRun("run-1"); err != nil || len(running) != 0 {
		t.Errorf("still there: %v, %v", running, err)
	}
}

func TestAProviderThatDoesNotStartIsLeftToTerraform(t *testing.T) {
	o, written := options(t, "run-2")
	changed := provider(t, "changed")
	changed.Verify = func() error { return errors.New("another checksum") }
	s := warm.Start([]warm.Provider{provider(t, "broken"), changed, provider(t, "helm")}, o)
	defer s.Close()
	if all := addresses(t, s); len(all) != 1 || all["registry.terraform.io/hashicorp/helm"].PID == 0 {
		t.Errorf("got %v", all)
	}
	for _, want := range []string{
		"a library is missing",
		"could not start provider registry.terraform.io/hashicorp/broken for all commands",
		"could not start provider registry.terraform.io/hashicorp/changed for all commands of the stage, " +
			"so Terraform does: another checksum",
	} {
		until(t, want, func() bool { return strings.Contains(written.String(), want) })
	}
}

func TestACrashedProviderIsLoggedOnceAndLeftToTerraform(t *testing.T) {
	o, written := options(t, "run-3")
	s := warm.Start([]warm.Provider{provider(t, "helm"), provider(t, "tls")}, o)
	defer s.Close()
	at := addresses(t, s)["registry.terraform.io/hashicorp/helm"]
	if at.PID == 0 {
		t.Fatalf("it has not started:\n%s", written)
	}
	if err := syscall.Kill(at.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	until(t, "one provider is left", func() bool { return len(addresses(t, s)) == 1 })
	addresses(t, s)
	const told = "provider registry.terraform.io/hashicorp/helm has ended"
	if n := strings.Count(written.String(), told); n != 1 {
		t.Errorf("logged %d times:\n%s", n, written)
	}
	if crashed := s.Crashed(); !slices.Equal(crashed, []string{"registry.terraform.io/hashicorp/helm"}) {
		t.Errorf("crashed: %q", crashed)
	}
}

// hashicorp/kubernetes logs the content of Secrets, in a form that no masker knows.
func TestOnlyACrashOfAServingProviderIsLogged(t *testing.T) {
	o, written := options(t, "run-6")
	s := warm.Start([]warm.Provider{provider(t, "kubernetes")}, o)
	defer s.Close()
	at := addresses(t, s)["registry.terraform.io/hashicorp/kubernetes"]
	if err := syscall.Kill(at.PID, syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	until(t, "the crash with its stack", func() bool {
		return strings.Contains(written.String(), "panic: the end\n") &&
			strings.Contains(written.String(), "goroutine ")
	})
	if strings.Contains(written.String(), "hunter2") {
		t.Errorf("a message for developers is in the log:\n%s", written)
	}
}

func TestAFolderOfSomebodyElseIsNotUsed(t *testing.T) {
	o, written := options(t, "run-4")
	if err := os.MkdirAll(o.Sockets, 0o755); err != nil {
		t.Fatal(err)
	}
	elsewhere := t.TempDir()
	err := errors.Join(os.Chmod(elsewhere, 0o755), os.Remove(o.Sockets), os.Symlink(elsewhere, o.Sockets))
	if err != nil {
		t.Fatal(err)
	}
	s := warm.Start([]warm.Provider{provider(t, "helm")}, o)
	defer s.Close()
	if all := addresses(t, s); len(all) != 0 || !strings.Contains(written.String(), "of this user alone") {
		t.Errorf("got %v\n%s", all, written)
	}
	if info, err := os.Stat(elsewhere); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("the folder behind the link was changed: %v, %v", info, err)
	}
}

func TestWaitingForProvidersEndsWithTheContext(t *testing.T) {
	o, _ := options(t, "run-5")
	slow, begun := provider(t, "helm"), make(chan struct{})
	slow.Verify = func() error { <-begun; return nil }
	s := warm.Start([]warm.Provider{slow}, o)
	defer s.Close()
	defer close(begun)
	cause := errors.New("interrupt signal received")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if _, err := s.Addresses(ctx); err != cause {
		t.Errorf("got %v", err)
	}
}

func TestExecutableIsFoundLikeTerraformDoes(t *testing.T) {
	dir := t.TempDir()
	names := []string{"LICENSE", "terraform-provider-helmfile_v1.0.0", "terraform-provider-helm_v3.1.2"}
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if got := warm.Executable(dir, "helm"); got != dir+"/terraform-provider-helm_v3.1.2" {
		t.Errorf("helm: got %q", got)
	}
	if got := warm.Executable(dir, "tls") + warm.Executable(dir+"/none", "tls"); got != "" {
		t.Errorf("tls: got %q", got)
	}
}
