package unrecorded_test

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ephemeral-castle/castle/internal/cluster"
	emulator "github.com/ephemeral-castle/castle/internal/emulator/proxmox"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/run/unrecorded"
	"github.com/ephemeral-castle/castle/stages"
	"github.com/ephemeral-castle/castle/templates"
)

const (
	accepted = "castle@pve!castle=3f0c9a52-1b7e-4d55-9a51-0c8f3d1f6b27"
	rotated  = "castle@pve!castle=00000000-1b7e-4d55-9a51-0c8f3d1f6b27"
)

// The cluster blue has one machine, 421, and no record.
var files = map[string]string{
	"clusters/blue/lab/cluster.hcl": `stage "machines" { source = "platform/machines" }`,
	"stages/platform/machines/stage.hcl": `
stage { ends_cluster = true }
preflight "vm_ids" "free" {
  endpoint  = var.endpoint
  api_token = var.token
  insecure  = true
  vm_ids    = { cp-01 = 421 }
  names     = { cp-01 = "blue-cp-01" }
  tags      = ["castle", cluster.name]
}
`,
	"stages/platform/machines/main.tf": `
variable "endpoint" { type = string }
variable "token" {
  type      = string
  sensitive = true
}
`,
}

// look asks a datacenter with these machines, with the token of the configuration and that of the
// environment.
func look(t *testing.T, configured, environment string, machines ...emulator.VM) *unrecorded.Found {
	t.Helper()
	server := emulator.New(emulator.Config{Token: accepted})
	for _, m := range machines {
		server.AddVM(m)
	}
	listener := httptest.NewTLSServer(server.Handler())
	t.Cleanup(func() { listener.Close(); server.Close() })
	repository := t.TempDir()
	for name, content := range files {
		path := filepath.Join(repository, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, err := cluster.Open(t.Context(), cluster.Options{
		Repository: repository, Cluster: "blue", StateDir: t.TempDir(),
		Vars:    map[string]string{"endpoint": listener.URL, "token": configured},
		Environ: []string{"PROXMOX_VE_API_TOKEN=" + environment}, Library: stages.Library,
		Templates: templates.Files,
	})
	if err != nil {
		t.Fatal(err)
	}
	found, err := unrecorded.Look(t.Context(), run.Observe(t.Context(), c), c.Config.Stages)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func machine(id int, name string, tags ...string) emulator.VM {
	return emulator.VM{ID: id, Name: name, Tags: tags}
}

// An empty record proves nothing: machines with the cluster's name and tags may be its own, at whatever id.
// Others are nobody's business.
func TestMachinesOfTheClusterAreFoundWithoutARecord(t *testing.T) {
	found := look(t, accepted, "", machine(421, "blue-cp-01", "castle", "blue"),
		machine(507, "blue-worker-09", "castle", "blue"), machine(422, "prod-database"),
		machine(423, "bluebird-cp-01", "castle", "bluebird"))
	var ids []int
	for _, m := range found.Machines {
		ids = append(ids, m.ID)
	}
	if !slices.Equal(ids, []int{421, 507}) || found.NotAsked != "" {
		t.Errorf("found %v, not asked: %q", ids, found.NotAsked)
	}
	if fixes := strings.Join(found.Fixes, "\n"); !strings.Contains(fixes, "--state-dir") ||
		!strings.Contains(fixes, "--adopt") {
		t.Errorf("fixes:\n%s", fixes)
	}
}

// Only an answer of the datacenter says that there is nothing.
func TestNothingIsKnownUntilTheDatacenterHasAnswered(t *testing.T) {
	if found := look(t, accepted, ""); !found.None() || found.Endpoint == "" {
		t.Errorf("an empty datacenter: %+v", found)
	}
	found := look(t, rotated, "", machine(421, "blue-cp-01", "castle", "blue"))
	if found.None() || !strings.Contains(found.NotAsked, "no API token is known") {
		t.Errorf("without a token that it accepts: %+v", found)
	}
}

// A token that somebody has rotated does not blind castle: the environment's serves, too.
func TestTheEnvironmentsTokenServesWhereTheConfiguredOneIsRefused(t *testing.T) {
	found := look(t, rotated, accepted, machine(421, "blue-cp-01", "castle", "blue"))
	if len(found.Machines) != 1 || found.NotAsked != "" {
		t.Errorf("%+v", found)
	}
	found = look(t, rotated, rotated)
	if !strings.Contains(found.NotAsked, "the configuration: ") || strings.Contains(found.NotAsked,
		"0000000") {
		t.Errorf("not asked: %q", found.NotAsked)
	}
}

// A guest that the token may not see has the machine's id: nobody can say whose it is.
func TestAHiddenGuestAtAnIDIsNoProof(t *testing.T) {
	found := look(t, accepted, "", emulator.VM{ID: 421, Hidden: true})
	if !strings.Contains(found.NotAsked, "may not see what has the VM ids [421]") {
		t.Errorf("%+v", found)
	}
}
