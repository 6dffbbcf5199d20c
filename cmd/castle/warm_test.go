//go:build integration

package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/process"
)

// publishedProviders is the variable that, with the value registry, makes TestLabWarm use the published
// providers. It then rehearses each cluster of warmChanges.
const publishedProviders = "CASTLE_TEST_PROVIDERS"

// warmChanges are what TestLabWarm replaces in each cluster's terraform.tfvars between two creates.
var warmChanges = map[string][]string{
	"mini":     {"memory = 16384", "memory = 12288", ".232-192", ".233-192"},
	"blue":     {"memory = 8192", "memory = 6144", ".249\"]", ".248\"]"},
	"handover": {"memory = 16384", "memory = 12288", "-192.168.1.207", "-192.168.1.206"},
	"tazlab": {"memory = 16384", "memory = 12288", "-192.168.1.187", "-192.168.1.186",
		"pg_read_all_data", "pg_monitor"},
}

// TestLabWarm creates, changes and destroys a cluster twice: Terraform starts its providers in the first
// turn, and uses those that castle has started in the second. Journals and states are the same, up to values
// that are made anew each time.
func TestLabWarm(t *testing.T) {
	const inside = "TF_VAR_castle_test_cluster"
	if cluster := os.Getenv(inside); cluster != "" {
		t.Run(cluster, func(t *testing.T) { compareWarm(t, cluster) })
		return
	}
	providers, clusters := cmp.Or(os.Getenv(publishedProviders), "stand-in"), []string{"mini"}
	if providers == "registry" {
		clusters = slices.Sorted(maps.Keys(warmChanges))
	}
	for _, cluster := range clusters {
		t.Run(cluster, func(t *testing.T) {
			out := rehearse(t, []string{inside + "=" + cluster},
				"-C", "../..", cluster, "--providers", providers)
			if !strings.Contains(out, "Left over: nothing") {
				t.Fatalf("something is left over:\n%s", out)
			}
		})
	}
}

// compareWarm does both turns, inside a rehearsal.
func compareWarm(t *testing.T, cluster string) {
	configuration := filepath.Join(os.Getenv("CASTLE_LAB_REPOSITORY"), "clusters", cluster,
		"proxmox/terraform.tfvars")
	original, err := os.ReadFile(configuration)
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(os.Getenv("CASTLE_LAB_REPOSITORY"))
	turn := func(warm string) *turnResult {
		t.Setenv("CASTLE_WARM_PROVIDERS", warm)
		result := &turnResult{cluster: cluster, states: map[string]string{}}
		result.castle(t, "create")
		changed := strings.NewReplacer(warmChanges[cluster]...).Replace(string(original))
		if err := os.WriteFile(configuration, []byte(changed), 0o600); err != nil {
			t.Fatal(err)
		}
		result.castle(t, "create")
		result.readStates(t)
		result.castle(t, "destroy", "--all")
		if err := os.WriteFile(configuration, original, 0o600); err != nil {
			t.Fatal(err)
		}
		return result
	}
	cold, warm := turn("0"), turn("1")
	t.Logf("create, change and destroy took %v with Terraform's providers, %v with castle's",
		cold.took, warm.took)
	if cold.served != 0 || warm.served != 3 {
		t.Errorf("castle started providers in %d commands with 0, in %d with 1", cold.served, warm.served)
	}
	if !slices.Equal(cold.changes, warm.changes) {
		t.Errorf("the journals differ: Terraform's own\n  %s\ncastle's\n  %s",
			strings.Join(cold.changes, "\n  "), strings.Join(warm.changes, "\n  "))
	}
	for _, path := range slices.Sorted(maps.Keys(merged(cold.states, warm.states))) {
		if cold.states[path] != warm.states[path] && !madeAnew.MatchString(path) {
			t.Errorf("%s: with Terraform's own %q, with castle's %q", path, cold.states[path],
				warm.states[path])
		}
	}
	if len(cold.states) < 500 || len(cold.changes) < 40 {
		t.Errorf("compared %d values and %d changes only", len(cold.states), len(cold.changes))
	}
	killProvider(t, cluster)
	if left := ofRuns(t, cluster, ""); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// madeAnew matches the values in states that no two clusters have in common.
var madeAnew = regexp.MustCompile(`\.(first_deployed|last_deployed|last_updated|resource_version|uid|uuid|` +
	`mac_address|mac_addresses\.\d+|bcrypt_hash|result|kubeconfig_raw|talos_config|triggers_replace\.value|` +
	`machine_configuration(_input|_hash)?|config_patches\.\d+|` +
	`accessor|created_time|data_json|password|jwt_validation_pubkeys\.\d+)$|` +
	`\.(machine_secrets|client_configuration|kubernetes_client_configuration)\.|` +
	`^keys/tls_(private_key|cert_request|locally_signed_cert)\.|^infisical-access/infisical_secret\.`)

// ofRuns are the files of this name in the folders for sockets of a cluster's runs.
func ofRuns(t *testing.T, cluster, name string) (all []string) {
	t.Helper()
	runs, err := filepath.Glob(filepath.Join(os.Getenv("CASTLE_STATE_DIR"), cluster, "*/runs/*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, run := range runs {
		found, err := filepath.Glob(filepath.Join(process.RuntimeDir(filepath.Base(run)), name))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, found...)
	}
	return all
}

// killProvider kills a provider of castle while a stage is applied. The same command then completes.
func killProvider(t *testing.T, cluster string) {
	t.Helper()
	t.Setenv("CASTLE_WARM_PROVIDERS", "1")
	cmd := exec.CommandContext(t.Context(), "castle", "create", cluster, "--yes", "--to", "platform")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	killed := eventually(time.Minute, 5*time.Millisecond, func() bool {
		for _, c := range carriers() {
			path, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", c.pid))
			if p, readErr := process.Read(c.pid); err == nil && readErr == nil &&
				p.Parent == cmd.Process.Pid &&
				strings.Contains(path, "terraform-provider-proxmox") {
				return syscall.Kill(c.pid, syscall.SIGKILL) == nil
			}
		}
		return false
	})
	err := cmd.Wait() // it may have been between two commands
	if !killed {
		t.Fatalf("no provider was killed: %v", err)
	}
	again := exec.CommandContext(t.Context(), "castle", "create", cluster, "--yes", "--to", "platform")
	if out, err := again.CombinedOutput(); err != nil {
		t.Errorf("the create after a crash: %v\n%s", err, out)
	}
	if out, err := exec.CommandContext(t.Context(), "castle", "destroy", cluster, "--all",
		"--yes").CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// turnResult is what one create, change and destroy has left.
type turnResult struct {
	cluster string
	changes []string          // of resources, as the journals have them, sorted within a run
	states  map[string]string // each value after the change, by stage, address and path
	served  int               // commands in which a provider of castle listened
	took    []time.Duration   // by each command
}

// castle runs one command and reads its journal.
func (r *turnResult) castle(t *testing.T, command string, flags ...string) {
	t.Helper()
	args := append([]string{command, r.cluster, "--yes"}, flags...)
	cmd, done := exec.CommandContext(t.Context(), "castle", args...), make(chan error)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	began := time.Now()
	go func() { done <- cmd.Run() }()
	for listens, ended := false, false; !ended; {
		select {
		case err := <-done:
			if ended = true; err != nil {
				t.Fatalf("castle %s: %v\n%s", command, err, out.String())
			}
		case <-time.After(20 * time.Millisecond):
			if !listens && len(ofRuns(t, r.cluster, "plugin*")) > 0 {
				listens = true
				r.served++
			}
		}
	}
	r.took = append(r.took, time.Since(began).Round(100*time.Millisecond))
	journals, err := filepath.Glob(filepath.Join(os.Getenv("CASTLE_STATE_DIR"), r.cluster,
		"*/runs/*/journal.jsonl"))
	if err != nil || len(journals) == 0 {
		t.Fatalf("journals: %v, %v", journals, err)
	}
	slices.Sort(journals)
	content, err := os.ReadFile(journals[len(journals)-1])
	if err != nil {
		t.Fatal(err)
	}
	var changes []string
	for line := range strings.Lines(string(content)) {
		var e event.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		if e.Kind == event.Resource {
			changes = append(changes, fmt.Sprintf("%s %s/%s %s %s %s", command, e.Layer, e.Stage, e.Action,
				e.Address, e.Text))
		}
	}
	slices.Sort(changes)
	r.changes = append(r.changes, changes...)
}

// readStates reads every value of every state.
func (r *turnResult) readStates(t *testing.T) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(os.Getenv("CASTLE_STATE_DIR"), r.cluster,
		"*/stages/*/terraform.tfstate"))
	if err != nil || len(files) == 0 {
		t.Fatalf("states: %v, %v", files, err)
	}
	for _, file := range files {
		var state struct {
			Resources []struct {
				Mode, Type, Name, Module string
				Instances                []map[string]any
			}
		}
		content, err := os.ReadFile(file)
		if err == nil {
			err = json.Unmarshal(content, &state)
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		stage := filepath.Base(filepath.Dir(file))
		for _, resource := range state.Resources {
			for _, instance := range resource.Instances {
				delete(instance, "sensitive_attributes") // a set: Terraform writes it in any order
				address := fmt.Sprintf("%s/%s.%s[%v]", stage, resource.Type, resource.Name,
					instance["index_key"])
				flatten(r.states, address, instance)
			}
		}
	}
}

// flatten adds each value below a path.
func flatten(all map[string]string, path string, value any) {
	switch value := value.(type) {
	case map[string]any:
		for name, inner := range value {
			flatten(all, path+"."+name, inner)
		}
	case []any:
		for i, inner := range value {
			flatten(all, fmt.Sprintf("%s.%d", path, i), inner)
		}
	default:
		all[path] = fmt.Sprint(value)
	}
}

func merged(a, b map[string]string) map[string]string {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}
