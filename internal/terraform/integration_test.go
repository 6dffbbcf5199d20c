//go:build integration

package terraform

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/process"
	"github.com/ephemeral-castle/castle/internal/state"
)

const secret = "tr0ub4dor-and-3"

// site is one stage in a state directory, with the Terraform on PATH. terraform_data is built into
// Terraform, so the tests need no network.
type site struct {
	root    *Root
	stage   *state.Stage
	log     *bytes.Buffer
	changes []Change
}

func newSite(t *testing.T) *site {
	t.Helper()
	binary, err := Find(t.Context(), Terraform, t.TempDir(), func(n string) { t.Log(n) })
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	dir, err := state.Open(root, "blue", "proxmox")
	if err != nil {
		t.Fatal(err)
	}
	lock, err := dir.Lock("run-1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lock.Unlock(); err != nil {
			t.Error(err)
		}
	})
	p := &site{stage: dir.Stage("platform"), log: new(bytes.Buffer)}
	p.root = &Root{
		Binary: binary, Dir: p.stage.Work(), StatePath: p.stage.StatePath(),
		PluginCache: filepath.Join(root, ".plugins"),
		Env:         os.Environ(), Run: filepath.Base(filepath.Dir(root)), Log: p.log,
		OnResource: func(c Change) { p.changes = append(p.changes, c) },
	}
	return p
}

func (p *site) prepare(t *testing.T, main string, inputs map[string]cty.Value) {
	t.Helper()
	module := fstest.MapFS{"main.tf": file(main)}
	if err := p.root.Materialise(module, Override{Inputs: inputs}); err != nil {
		t.Fatal(err)
	}
	initialise(t, p.root)
}

func (p *site) plan(t *testing.T, o PlanOptions) *Plan {
	t.Helper()
	plan, err := p.root.Plan(t.Context(), o)
	if err != nil {
		t.Fatalf("%v\n%s", err, p.log)
	}
	return plan
}

func (p *site) apply(t *testing.T, plan *Plan) {
	t.Helper()
	if err := p.root.Apply(t.Context(), plan); err != nil {
		t.Fatalf("%v\n%s", err, p.log)
	}
}

func (p *site) state(t *testing.T) *state.State {
	t.Helper()
	s, err := p.stage.State()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func addresses(s *state.State) []string {
	var all []string
	for _, r := range s.Resources {
		all = append(all, r.Address)
	}
	return all
}

const simple = `
variable "token" {
  type      = string
  sensitive = true
}
variable "nodes" { type = map(number) }
resource "terraform_data" "node" {
  for_each = var.nodes
  input    = each.value
}
resource "terraform_data" "count" {
  count            = 1
  triggers_replace = [var.token]
}
output "ids" { value = { for k, n in terraform_data.node : k => n.output } }
output "token" {
  value     = var.token
  sensitive = true
}`

func simpleInputs() map[string]cty.Value {
	return map[string]cty.Value{
		"token": cty.StringVal(secret),
		"nodes": cty.ObjectVal(map[string]cty.Value{"cp-1": cty.NumberIntVal(421),
			`say "${hi}"`: cty.NumberIntVal(1)}),
	}
}

func TestIntegrationApplyPlanAndDestroy(t *testing.T) {
	old := syscall.Umask(0o022)
	defer syscall.Umask(old)
	p := newSite(t)
	p.prepare(t, simple, simpleInputs())

	plan := p.plan(t, PlanOptions{})
	if plan.Empty || len(plan.Changes) != 3 {
		t.Errorf("plan: %+v", plan)
	}
	p.apply(t, plan)
	s := p.state(t)
	want := []string{"terraform_data.count[0]", `terraform_data.node["cp-1"]`,
		`terraform_data.node["say \"$${hi}\""]`}
	if got := addresses(s); !slices.Equal(got, want) {
		t.Errorf("state: got %q, want %q", got, want)
	}
	var done []string
	for _, c := range p.changes {
		if c.Phase == Done {
			done = append(done, c.Address)
			if c.Action != "create" || c.ID == "" || c.Type != "terraform_data" {
				t.Errorf("got %+v", c)
			}
		}
	}
	if slices.Sort(done); !slices.Equal(done, want) {
		t.Errorf("Terraform's own addresses: got %q, want %q", done, want)
	}
	if s.Resources[0].Provider != "terraform.io/builtin/terraform" {
		t.Errorf("provider: %q", s.Resources[0].Provider)
	}
	ids, token := s.Outputs["ids"], s.Outputs["token"]
	if !ids.Value.RawEquals(cty.ObjectVal(map[string]cty.Value{"cp-1": cty.NumberIntVal(421),
		`say "${hi}"`: cty.NumberIntVal(1)})) || ids.Sensitive {
		t.Errorf("ids: %#v", ids)
	}
	if token.Value.AsString() != secret || !token.Sensitive {
		t.Errorf("token: %#v", token)
	}
	for _, path := range []string{p.root.StatePath, filepath.Join(p.root.Dir, "castle.auto.tfvars.json")} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
	if strings.Contains(p.log.String(), secret) {
		t.Error("the log has the secret")
	}

	if plan := p.plan(t, PlanOptions{}); !plan.Empty || len(plan.Changes) != 0 {
		t.Errorf("nothing has changed, but: %+v", plan)
	}
	targeted := p.plan(t, PlanOptions{Destroy: true, Targets: []string{`terraform_data.node["cp-1"]`}})
	if len(targeted.Changes) != 1 || targeted.Changes[0].Action != "delete" {
		t.Errorf("targeted: %+v", targeted.Changes)
	}
	remove := []string{"state", "rm", "-backup=" + p.root.StatePath + ".backup", "terraform_data.count[0]"}
	if code, err := p.root.Exec(t.Context(), remove, strings.NewReader(""), io.Discard,
		io.Discard); code != 0 || err != nil {
		t.Fatalf("state rm: %d, %v", code, err)
	}
	if got := addresses(p.state(t)); slices.Contains(got, want[0]) || len(got) != 2 {
		t.Errorf("after state rm: %q", got)
	}
	if err := p.root.Apply(t.Context(), targeted); !errors.Is(err, ErrStalePlan) {
		t.Errorf("a plan from before: %v", err)
	}

	p.apply(t, p.plan(t, PlanOptions{Destroy: true}))
	if s := p.state(t); !s.Exists || len(s.Resources) != 0 {
		t.Errorf("destroyed, but: %+v", s)
	}
	entries, err := os.ReadDir(p.stage.Dir())
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if info, err := e.Info(); err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v, %v", e.Name(), info.Mode(), err)
		}
	}
}

func TestIntegrationTheChildGetsNoSecretArgument(t *testing.T) {
	for name, value := range map[string]string{
		"KUBE_HOST": "https://127.0.0.1:1", "KUBECONFIG": "/none", "TF_VAR_token": "wrong",
		"TF_CLI_ARGS_apply": "-lock=false",
		"TF_LOG":            "TRACE", "VAULT_ADDR": "https://127.0.0.1:2",
		"TF_CLI_CONFIG_FILE": filepath.Join(t.TempDir(), "none"),
	} {
		t.Setenv(name, value)
	}
	p := newSite(t)
	p.prepare(t, `
variable "token" { type = string }
resource "terraform_data" "probe" {
  input = sha256(var.token)
  provisioner "local-exec" {
    command = "tr '\\0' '\\n' </proc/$PPID/cmdline >cmdline; env >environment"
  }
}
output "digest" { value = terraform_data.probe.output }`,
		map[string]cty.Value{"token": cty.StringVal(secret)})
	p.apply(t, nil)
	if got := p.state(t).Outputs["digest"].Value.AsString(); got != fmt.Sprintf("%x",
		sha256.Sum256([]byte(secret))) {
		t.Errorf("the input that arrived is another one: %s", got)
	}
	cmdline, env := get(t, filepath.Join(p.root.Dir, "cmdline")),
		get(t, filepath.Join(p.root.Dir, "environment"))
	if !strings.Contains(cmdline, "apply\n") || strings.Contains(cmdline, secret) {
		t.Errorf("command line: %q", cmdline)
	}
	for _, want := range []string{"CASTLE_RUN=" + p.root.Run + "\n", "VAULT_ADDR=https://127.0.0.1:2\n",
		"CHECKPOINT_DISABLE=1\n"} {
		if !strings.Contains(env, want) {
			t.Errorf("environment lacks %q", want)
		}
	}
	for _, banned := range []string{"KUBE", "TF_VAR_", "TF_CLI_", "TF_PLUGIN_CACHE_DIR", secret} {
		if strings.Contains(env, banned) {
			t.Errorf("environment has %s:\n%s", banned, env)
		}
	}
	if strings.Contains(p.log.String(), "configuration file") {
		t.Errorf("a warning about the configuration file that is not there:\n%s", p.log)
	}
}

// onText cancels when the log contains a text.
type onText struct {
	io.Writer
	text   string
	cancel func()
}

func (o onText) Write(p []byte) (int, error) {
	if strings.Contains(string(p), o.text) {
		o.cancel()
	}
	return o.Writer.Write(p)
}

func TestIntegrationCancelInTheMiddleOfAnApply(t *testing.T) {
	for _, test := range []struct {
		when string
		made bool // slow is surely in the state; at its start Terraform may still drop it
	}{
		{"terraform_data.slow: Creating...", false},
		{"terraform_data.slow: (local-exec): Executing", true},
	} {
		p := newSite(t)
		p.prepare(t, `
resource "terraform_data" "first" {}
resource "terraform_data" "slow" {
  depends_on = [terraform_data.first]
  provisioner "local-exec" { command = "exec sleep 300" }
}
resource "terraform_data" "after" { depends_on = [terraform_data.slow] }`, nil)
		ctx, cancel := context.WithCancelCause(t.Context())
		cause := errors.New("interrupt signal received")
		p.root.Log = onText{p.log, test.when, func() { cancel(cause) }}
		if err := p.root.Apply(ctx, nil); err != cause {
			t.Errorf("got %v", err)
		}
		if !strings.Contains(p.log.String(), "Interrupt received") ||
			strings.Contains(p.log.String(), "Two interrupts") {
			t.Errorf("log:\n%s", p.log)
		}
		if pids, err := p.root.processes(); err != nil || len(pids) != 0 {
			t.Errorf("still running: %v, %v", pids, err)
		}
		s := p.state(t)
		got := addresses(s)
		if s.Notice != "" || !slices.Contains(got, "terraform_data.first") ||
			slices.Contains(got, "terraform_data.after") {
			t.Errorf("state: %q, %q", got, s.Notice)
		}
		if test.made && (len(got) != 2 || !s.Resources[1].Tainted) {
			t.Errorf("what was interrupted is not there or not marked: %+v", s.Resources)
		}
		p.root.Log = p.log
		p.prepare(t, `resource "terraform_data" "first" {}`, nil)
		p.apply(t, p.plan(t, PlanOptions{})) // the same state, without a lock in the way
		if got := addresses(p.state(t)); len(got) != 1 {
			t.Errorf("after the next apply: %q", got)
		}
	}
}

func TestIntegrationAStateInUseIsLocked(t *testing.T) {
	p := newSite(t)
	// The first apply ends when the file is there, which is after the second has been refused.
	p.prepare(t, `
resource "terraform_data" "slow" {
  provisioner "local-exec" { command = "until [ -e go ]; do sleep 0.05; done" }
}`, nil)
	other := &Root{Binary: p.root.Binary, Dir: p.root.Dir, StatePath: p.root.StatePath,
		PluginCache: p.root.PluginCache, Env: p.root.Env, Run: p.root.Run}
	started := make(chan struct{})
	p.root.OnResource = func(c Change) {
		if c.Phase == Started {
			close(started)
		}
	}
	ended := make(chan error)
	go func() { ended <- p.root.Apply(t.Context(), nil) }()
	<-started
	for name, err := range map[string]error{
		"plan":   func() error { _, err := other.Plan(t.Context(), PlanOptions{}); return err }(),
		"import": other.Import(t.Context(), "terraform_data.slow", "x"),
	} {
		if !errors.Is(err, ErrStateLocked) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	writeFile(t, filepath.Join(p.root.Dir, "go"), "")
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestIntegrationATruncatedStateIsRestored(t *testing.T) {
	p := newSite(t)
	p.prepare(t, simple, simpleInputs())
	p.apply(t, nil)
	before := p.state(t)
	if err := p.stage.Snapshot(); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(p.root.StatePath, 300); err != nil {
		t.Fatal(err)
	}
	if after := p.state(t); after.Notice == "" || after.SHA256 != before.SHA256 {
		t.Errorf("got %+v", after)
	}
	if plan := p.plan(t, PlanOptions{}); !plan.Empty {
		t.Errorf("the restored state needs changes: %+v", plan.Changes)
	}
}

func TestIntegrationTheNextRunCompletesAKilledApply(t *testing.T) {
	p := newSite(t)
	p.prepare(t, `
resource "terraform_data" "first" {}
resource "terraform_data" "slow" {
  depends_on = [terraform_data.first]
  provisioner "local-exec" { command = "[ -e killed ] || exec sleep 300" }
}`, nil)
	started := make(chan struct{})
	p.root.OnResource = func(c Change) {
		if c.Address == "terraform_data.slow" && c.Phase == Started {
			close(started)
		}
	}
	ended := make(chan error)
	go func() { ended <- p.root.Apply(t.Context(), nil) }()
	<-started
	killed, err := process.EndRun(t.Context(), p.root.Run)
	if err != nil || len(killed) == 0 {
		t.Errorf("killed: %q, %v", killed, err)
	}
	if err := <-ended; err == nil {
		t.Error("the killed apply reports success")
	}
	writeFile(t, filepath.Join(p.root.Dir, "killed"), "")
	p.root.OnResource = nil
	p.apply(t, p.plan(t, PlanOptions{}))
	if got := addresses(p.state(t)); !slices.Equal(got,
		[]string{"terraform_data.first", "terraform_data.slow"}) {
		t.Errorf("state: %q", got)
	}
}

func TestIntegrationErrorsNameResourceFileAndLine(t *testing.T) {
	p := newSite(t)
	p.prepare(t, `resource "terraform_data" "bad" {
  provisioner "local-exec" { command = "exit 3" }
}`, nil)
	err := p.root.Apply(t.Context(), nil)
	if err == nil || !strings.HasPrefix(err.Error(), "terraform_data.bad: local-exec provisioner error: ") ||
		!strings.HasSuffix(err.Error(), "(main.tf:2)") {
		t.Errorf("apply: %v", err)
	}
	if err := p.root.Import(t.Context(), "terraform_data.none", "x"); err == nil ||
		errors.Is(err, ErrNoSuchObject) {
		t.Errorf("import to an address that the configuration lacks: %v", err)
	}
	if err := p.root.Materialise(fstest.MapFS{"main.tf": file("resource \"terraform_data\" \"x\" {\n  " +
		"nonsense = 1\n}")}, Override{}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.root.Plan(t.Context(), PlanOptions{}); err == nil ||
		!strings.HasPrefix(err.Error(), "Unsupported argument: ") ||
		!strings.HasSuffix(err.Error(), "(main.tf:2)") {
		t.Errorf("plan: %v", err)
	}
	p.prepare(t, `resource "terraform_data" "bad" {}`, nil)
	if err := p.root.Materialise(fstest.MapFS{"main.tf": file("resource \"terraform_data\" {")},
		Override{}); err != nil {
		t.Fatal(err)
	}
	if err := p.root.Init(t.Context()); err == nil || !strings.Contains(err.Error(), "main.tf:1") {
		t.Errorf("init: %v", err)
	}
}

func TestIntegrationAnUntrackedObjectCanBeImportedAgain(t *testing.T) {
	p := newSite(t)
	p.prepare(t, `resource "terraform_data" "adopted" {}`, nil)
	for range 2 {
		if err := p.root.Import(t.Context(), "terraform_data.adopted", "x"); err != nil {
			t.Fatal(err)
		}
		if err := p.root.Untrack(t.Context(), []string{"terraform_data.adopted"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.root.Untrack(t.Context(), []string{"terraform_data.adopted"}); err == nil {
		t.Error("forgetting what the state lacks is no error")
	}
}

func TestIntegrationImportAndExec(t *testing.T) {
	p := newSite(t)
	p.prepare(t, `resource "terraform_data" "adopted" {}`, nil)
	if err := p.root.Import(t.Context(), "terraform_data.adopted", "the-id"); err != nil {
		t.Fatal(err)
	}
	if got := p.state(t).Resources; len(got) != 1 || got[0].Attributes["id"] != "the-id" {
		t.Errorf("state: %+v", got)
	}
	var out, errs bytes.Buffer
	code, err := p.root.Exec(t.Context(), []string{"output", "-json"}, strings.NewReader(""), &out, &errs)
	if code != 0 || err != nil || !json.Valid(out.Bytes()) {
		t.Errorf("got %d, %v, %q, %q", code, err, out.String(), errs.String())
	}
	code, err = p.root.Exec(t.Context(), []string{"console"}, strings.NewReader("upper(\"heard\")\n"), &out,
		&errs)
	if code != 0 || err != nil || !strings.Contains(out.String(), `"HEARD"`) {
		t.Errorf("console: %d, %v, %q, %q", code, err, out.String(), errs.String())
	}
	if code, err := p.root.Exec(t.Context(), []string{"no-such-command"}, strings.NewReader(""), io.Discard,
		io.Discard); code != 1 || err != nil {
		t.Errorf("a command that fails: %d, %v", code, err)
	}
}

func TestIntegrationInitRunsOnceAndRefusesAnotherBackend(t *testing.T) {
	p := newSite(t)
	p.prepare(t, `resource "terraform_data" "a" {}`, nil)
	before := p.log.Len()
	p.prepare(t, `resource "terraform_data" "a" {}`, nil)
	if p.log.Len() != before {
		t.Errorf("init ran again:\n%s", p.log)
	}
	err := p.root.Materialise(fstest.MapFS{"zz_override.tf": file(`terraform { 
  backend "local" {
    path = "elsewhere.tfstate"
  }
}`)}, Override{})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.root.Init(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "keeps its state elsewhere") {
		t.Errorf("got %v", err)
	}
}
