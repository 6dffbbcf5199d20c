//go:build integration

package proxmox

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// apply and destroy are Terraform's arguments for a run without questions.
var (
	apply   = []string{"apply", "-auto-approve", "-input=false", "-no-color"}
	destroy = []string{"destroy", "-auto-approve", "-input=false", "-no-color"}
)

// root is a Terraform working directory with the real bpg provider.
type root struct {
	t   *testing.T
	dir string
	env []string
}

func newRoot(t *testing.T, d datacenter, module string) root {
	t.Helper()
	return newRootOf(t, d, map[string]string{"main.tf": module})
}

// newRootOf makes a working directory of these files.
func newRootOf(t *testing.T, d datacenter, module map[string]string) root {
	t.Helper()
	binary := os.Getenv("CASTLE_BPG")
	if binary == "" {
		binary = "../../../bin/terraform-provider-proxmox_v0.111.1"
	}
	binary, err := filepath.Abs(binary)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(binary); err != nil {
		t.Fatalf("the provider is not built: %v", err)
	}
	home := t.TempDir()
	mirror := filepath.Join(home, "mirror", "registry.terraform.io/bpg/proxmox/0.111.1/linux_amd64")
	if err := os.MkdirAll(mirror, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(binary, filepath.Join(mirror, filepath.Base(binary))); err != nil {
		t.Fatal(err)
	}
	r := root{t: t, dir: filepath.Join(home, "root")}
	files := map[string]string{
		filepath.Join(home, "terraformrc"): `provider_installation {
  filesystem_mirror { path = "` + filepath.Join(home, "mirror") + `" }
}`,
	}
	for name, content := range module {
		files[filepath.Join(r.dir, name)] = content
	}
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r.env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + home, "TF_CLI_CONFIG_FILE=" +
			filepath.Join(home, "terraformrc"), "CHECKPOINT_DISABLE=1",
		"TF_IN_AUTOMATION=1", "SSL_CERT_FILE=" + d.ca, "PROXMOX_VE_ENDPOINT=" + d.endpoint,
		"PROXMOX_VE_API_TOKEN=" + token,
	}
	r.must("init", "-input=false", "-no-color")
	return r
}

// write replaces the module.
func (r root) write(module string) {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(r.dir, "main.tf"), []byte(module), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

func (r root) run(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(r.t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "terraform", args...)
	cmd.Dir, cmd.Env, cmd.WaitDelay = r.dir, r.env, 10*time.Second
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

// running is a Terraform that has been started.
type running struct {
	root   root
	cmd    *exec.Cmd
	output *output
}

// start runs Terraform in a process group of its own.
func (r root) start(args ...string) running {
	r.t.Helper()
	run := running{r, exec.CommandContext(r.t.Context(), "terraform", args...), newOutput()}
	run.cmd.Dir, run.cmd.Env, run.cmd.WaitDelay = r.dir, r.env, 10*time.Second
	run.cmd.Stdout, run.cmd.Stderr = run.output, run.output
	run.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := run.cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	return run
}

// kill ends Terraform and its plugins at once.
func (r running) kill() {
	r.root.t.Helper()
	if err := syscall.Kill(-r.cmd.Process.Pid, syscall.SIGKILL); err != nil {
		r.root.t.Fatal(err)
	}
	if err := r.cmd.Wait(); err == nil {
		r.root.t.Error("a killed run ended as a success")
	}
	if err := os.Remove(filepath.Join(r.root.dir, ".terraform.tfstate.lock.info")); err != nil &&
		!os.IsNotExist(err) {
		r.root.t.Fatal(err)
	}
}

// interrupt sends Terraform one SIGINT and returns when it has noticed.
func (r running) interrupt() {
	r.root.t.Helper()
	if err := r.cmd.Process.Signal(os.Interrupt); err != nil {
		r.root.t.Fatal(err)
	}
	r.output.await(r.root.t.Context(), "Interrupt received")
}

func (r running) wait() error { return r.cmd.Wait() }

// output is a buffer that can be read while it is written.
type output struct {
	mu    sync.Mutex
	grown *sync.Cond
	all   bytes.Buffer
}

func newOutput() *output {
	o := &output{}
	o.grown = sync.NewCond(&o.mu)
	return o
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.grown.Broadcast()
	return o.all.Write(p)
}

// await returns when the output contains a text, or when ctx ends.
func (o *output) await(ctx context.Context, text string) {
	defer context.AfterFunc(ctx, o.grown.Broadcast)()
	o.mu.Lock()
	defer o.mu.Unlock()
	for ctx.Err() == nil && !strings.Contains(o.all.String(), text) {
		o.grown.Wait()
	}
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.all.String()
}

func (r root) must(args ...string) string {
	r.t.Helper()
	out, err := r.run(args...)
	if err != nil {
		r.t.Fatalf("terraform %v: %v\n%s", args, err, out)
	}
	return out
}

// plan returns the actions that a plan would take, by address.
func (r root) plan() map[string][]string {
	r.t.Helper()
	r.must("plan", "-input=false", "-no-color", "-out=plan")
	var plan struct {
		ResourceChanges []struct {
			Address string
			Change  struct{ Actions []string }
		} `json:"resource_changes"`
	}
	if err := json.Unmarshal([]byte(r.must("show", "-json", "plan")), &plan); err != nil {
		r.t.Fatal(err)
	}
	actions := map[string][]string{}
	for _, c := range plan.ResourceChanges {
		if len(c.Change.Actions) != 1 || c.Change.Actions[0] != "no-op" {
			actions[c.Address] = c.Change.Actions
		}
	}
	return actions
}
