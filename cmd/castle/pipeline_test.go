//go:build integration

package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"filippo.io/age"
)

// TestPipeline runs the workflow that castle ci writes, job after job, in a rehearsal: a pull request, its
// merge, a night, and a destroy by hand. The scripts of the jobs run as they are written. Each job has a new
// machine; the jobs share the store and the saved plans.
func TestPipeline(t *testing.T) {
	here := os.Getenv(inLab)
	if here == "" {
		if out := rehearse(t, nil, "-C", "../..", "mini"); !strings.Contains(out, "Left over: nothing") {
			t.Fatalf("something is left over:\n%s", out)
		}
		return
	}
	t.Chdir(here)
	f := newForge(t)
	branch := func(event string) map[string]string {
		return map[string]string{"github.event_name": event, "github.ref_name": "main"}
	}
	pull := func(from string) map[string]string {
		return map[string]string{"github.event_name": "pull_request", "github.ref_name": "1/merge",
			"github.event.number": "1", "github.event.pull_request.head.repo.full_name": from}
	}
	byHand := func(action, plan, confirm string) map[string]string {
		names := branch("workflow_dispatch")
		names["inputs.cluster"], names["inputs.action"] = "mini", action
		names["inputs.plan"], names["inputs.confirm"] = plan, confirm
		if plan != "" {
			data, err := os.ReadFile(f.artifact(plan, "mini-proxmox-plan", "mini-proxmox.castleplan"))
			must(t, err)
			names["inputs.sha256"] = fmt.Sprintf("%x", sha256.Sum256(data))
		}
		return names
	}

	fork := f.trigger(pull("eve/castles"))
	f.expect(fork, nil)

	review := f.trigger(pull("me/castles"))
	f.expect(review, map[string]string{plans: "success"})
	f.contains(review.summary[plans], "### castle plan mini/proxmox", "| platform/machines |")
	plan, err := os.ReadFile(f.artifact(review.id, "mini-proxmox-plan", "mini-proxmox.castleplan"))
	if err != nil || !bytes.HasPrefix(plan, []byte("age-encryption.org/v1\n")) {
		t.Fatalf("the plan is not encrypted: %v", err)
	}
	f.machines(0)

	// The machine of the create is lost after the first VM. The same job completes it on another one.
	lost := false
	f.started = func(cmd *exec.Cmd) { lost = f.loseMachine(cmd) || lost }
	merge := f.trigger(branch("push"))
	if f.started = nil; !lost {
		t.Fatal("the create ended before it had a VM")
	}
	f.expect(merge, map[string]string{plans: "success", creates: "failure"})
	f.again(merge, creates)
	f.expect(merge, map[string]string{plans: "success", creates: "success"})
	f.contains(merge.summary[creates], "### castle create mini/proxmox: succeeded after ")
	f.machines(2)

	night := f.trigger(branch("schedule"))
	f.expect(night, map[string]string{nights: "success"})
	f.contains(night.summary[nights], "    ready            yes: the gates of all 13 stages are open",
		"    green ")

	// Nothing is left to do, and the plan of another run is applied by its id.
	second := f.trigger(pull("me/castles"))
	f.expect(second, map[string]string{plans: "success"})
	f.expect(f.trigger(byHand("create", second.id, "")), map[string]string{creates: "success"})
	another := byHand("create", second.id, "")
	another["inputs.sha256"] = byHand("create", review.id, "")["inputs.sha256"]
	replaced := f.trigger(another)
	f.expect(replaced, map[string]string{creates: "failure"})
	f.contains(replaced.logs[creates], "it is not the file that was reviewed", "exit status 2")
	outdated := f.trigger(byHand("create", review.id, ""))
	f.expect(outdated, map[string]string{creates: "failure"})
	f.contains(outdated.logs[creates], "is outdated and was not applied", "exit status 3")

	// GitLab's jobs have the same store.
	for _, title := range []string{"mini: plan", "mini: create", "mini: status and doctor"} {
		if _, err := f.gitlab(title, nil); err != nil {
			t.Fatalf("%s: %v", title, err)
		}
	}
	log, err := f.gitlab("mini: destroy", map[string]string{"CASTLE_CONFIRM": "blue"})
	if f.contains(log, "Nothing was destroyed: set the variable CASTLE_CONFIRM"); err == nil {
		t.Fatal("GitLab destroys a cluster that nobody has named")
	}

	refused := f.trigger(byHand("destroy", "", "blue"))
	f.expect(refused, map[string]string{destroys: "failure"})
	f.contains(refused.logs[destroys], "Nothing was destroyed: type mini into the field confirm.")
	f.machines(2)
	f.expect(f.trigger(byHand("destroy", "", "mini")), map[string]string{destroys: "success"})
	f.machines(0)
	absent := f.trigger(branch("schedule"))
	f.expect(absent, map[string]string{nights: "failure"})
}

// The jobs of the cluster mini.
const (
	plans    = "plan-mini-proxmox"
	creates  = "create-mini-proxmox"
	destroys = "destroy-mini-proxmox"
	nights   = "nightly-mini-proxmox"
)

// newForge makes a repository with the cluster mini, a store, and the workflow.
func newForge(t *testing.T) *forge {
	t.Helper()
	f := &forge{t: t, folder: t.TempDir(), secrets: map[string]string{}}
	f.repository = filepath.Join(f.folder, "repository")
	identity, err := age.GenerateX25519Identity()
	must(t, err)
	castle := func(args ...string) {
		t.Helper()
		cmd := exec.Command("castle", args...)
		cmd.Dir = f.repository
		cmd.Env = append(os.Environ(), "CASTLE_STATE_STORE=")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("castle %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	must(t, os.MkdirAll(f.repository, 0o755))
	must(t, os.Mkdir(filepath.Join(f.folder, "store"), 0o700))
	must(t, os.WriteFile(filepath.Join(f.repository, "castle.hcl"), fmt.Appendf(nil,
		"state {\n  store = \"file://%s/store\"\n%s}\n", f.folder, encryption(identity)), 0o644))
	castle("init")
	must(t, os.CopyFS(filepath.Join(f.repository, "clusters/mini"),
		os.DirFS(filepath.Join(os.Getenv("CASTLE_LAB_REPOSITORY"), "clusters/mini"))))
	castle("ci", "github")
	castle("ci", "gitlab")
	f.secrets["secrets.CASTLE_AGE_IDENTITY"] = identity.String()
	for _, name := range []string{"PROXMOX_VE_API_TOKEN", "INFISICAL_UNIVERSAL_AUTH_CLIENT_ID",
		"INFISICAL_UNIVERSAL_AUTH_CLIENT_SECRET"} {
		if f.secrets["secrets."+name] = os.Getenv(name); os.Getenv(name) == "" {
			t.Fatalf("the lab has no %s", name)
		}
	}
	return f
}

// expect asserts the results of a run's jobs; those that are not named are skipped. No log shows a secret.
func (f *forge) expect(r *forgeRun, want map[string]string) {
	f.t.Helper()
	for id, result := range r.results {
		expected := want[id]
		if expected == "" {
			expected = "skipped"
		}
		if result != expected {
			f.t.Fatalf("run %s: %s: %s, want %s", r.id, id, result, expected)
		}
		for name, value := range f.secrets {
			if strings.Contains(r.logs[id]+r.summary[id], value) {
				f.t.Fatalf("run %s: %s shows %s", r.id, id, name)
			}
		}
	}
}

func (f *forge) contains(text string, parts ...string) {
	f.t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			f.t.Fatalf("no %q in:\n%s", part, text)
		}
	}
}

// machines asserts how many VMs exist.
func (f *forge) machines(want int) {
	f.t.Helper()
	found, err := listVMs(context.Background())
	must(f.t, err)
	if len(found) != want {
		f.t.Fatalf("%d machines, want %d: %v", len(found), want, found)
	}
}

// loseMachine kills a script that creates, and all that it has started, once a VM exists.
func (f *forge) loseMachine(script *exec.Cmd) (lost bool) {
	text, err := os.ReadFile(script.Args[len(script.Args)-1])
	must(f.t, err)
	if !bytes.Contains(text, []byte("castle create")) {
		return false
	}
	ended := func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", script.Process.Pid))
		return err != nil || bytes.Contains(stat, []byte(") Z "))
	}
	exists := func() bool {
		found, err := listVMs(context.Background())
		lost = err == nil && len(found) > 0
		return lost || ended()
	}
	if !eventually(3*time.Minute, 20*time.Millisecond, exists) || !lost {
		return false
	}
	must(f.t, syscall.Kill(-script.Process.Pid, syscall.SIGKILL))
	gone := func() bool {
		all := carriers()
		for _, c := range all {
			syscall.Kill(c.pid, syscall.SIGKILL) //nolint:errcheck // it may have ended
		}
		return len(all) == 0
	}
	if !eventually(time.Minute, 20*time.Millisecond, gone) {
		f.t.Fatalf("the killed processes do not end: %v", carriers())
	}
	return true
}
