package check_test

import (
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/ephemeral-castle/castle/internal/check"
)

// ownPlatform replaces the platform of the base by a stage that validates nothing.
const ownPlatform = `
-- clusters/blue/proxmox/cluster.hcl --
stage "machines" { source = "platform/machines" }
-- stages/platform/machines/stage.hcl --
stage { summary = "Machines of the user's own" }
-- stages/platform/machines/main.tf --
variable "nodes" {
  type = map(object({ role = string, vm_id = number, address = string, cores = optional(number, 0) }))
}
variable "vip" { type = string }
variable "network" { type = object({ gateway = string, prefix = number }) }
-- clusters/blue/proxmox/terraform.tfvars --
network = { gateway = "192.168.1.1", prefix = 24 }
vip     = "192.168.1.13"
nodes = {
  a = { role = "controlplane", vm_id = 421, address = "192.168.1.11" }
  b = { role = "worker", vm_id = 421, address = "192.168.1.12" }
  c = { role = "worker", vm_id = 423, address = "192.168.1.13" }
  d = { role = "worker", vm_id = 424, address = "192.168.2.14" }
  e = { role = "worker", vm_id = 421, address = "192.168.2.15" }
}
`

// The library's validations that are rules hold for every stage with these variables,
// its others do not: the nodes have no cores here.
func TestOwnStageIsHeldToTheRulesOfTheLibrary(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, archive(t, "testdata/base.txtar"), txtar.Parse([]byte(ownPlatform)))
	o := options(dir)
	o.Clusters = []string{"blue/proxmox"}
	report, err := check.Run(o)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, d := range report.Diagnostics {
		got = append(got, string(check.RuleOf(d))+" "+d.Summary)
	}
	want := []string{
		"vip-is-node vip: the address of node c",
		"vm-id-twice node b: the VM id of node a",
		"node-outside node d: outside of the network",
		"vm-id-twice node e: the VM id of node a",
		"node-outside node e: outside of the network",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s", strings.Join(got, "\n"))
	}
}
