package config

import (
	"path/filepath"
	"testing"

	"github.com/siderolabs/gen/xslices"
	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/syntax"
)

const (
	ofAll  = "clusters/common.tfvars"
	ofBlue = "clusters/blue/common.tfvars"
)

// A small cluster, and one beside it that uses address_pool.
const (
	aCluster = "-- clusters/blue/proxmox/cluster.hcl --\n" +
		"stage \"infisical\" { source = \"secrets/infisical\" }\n" +
		"stage \"metallb\" { source = \"networking/metallb\" }\n" +
		"stage \"proxmox-talos\" { source = \"platform/bare\" }\n" +
		"-- clusters/blue/proxmox/terraform.tfvars --\n" +
		"-- library/platform/bare/stage.hcl --\nstage {}\n-- library/platform/bare/main.tf --\n" +
		"output \"kubeconfig\" { value = 1 }\n"
	aNeighbour = "-- clusters/red/proxmox/cluster.hcl --\n" +
		"stage \"address-pool\" { source = \"networking/address-pool\" }\n"
)

func TestOuterValuesYieldToInnerOnes(t *testing.T) {
	const name = "metallb_chart_version"
	changes := aCluster + "-- castle.hcl --\ndefaults { inputs = { " + name + " = \"castle.hcl\" } }\n"
	for _, file := range []string{ofAll, ofBlue, "clusters/blue/proxmox/terraform.tfvars",
		"clusters/blue/proxmox/secrets.tfvars"} {
		changes += "-- " + file + " --\n\n" + name + " = \"" + file + "\"\n"
		c := loaded(t, changes)
		s := stage(t, c, "metallb")
		if got := inputs(t, s)[name].AsString(); got != file {
			t.Errorf("got the value of %s, want that of %s", got, file)
		}
		at := s.Written(name).At()
		if got := syntax.Place(at); got != file+":2" {
			t.Errorf("it is at %s, want %s:2", got, file)
		}
		all := xslices.Map(c.Settings(name, s), func(w Written) string { return syntax.Place(w.At()) })
		if first, last := all[0], all[len(all)-1]; first != file+":2" ||
			last != "<embedded>/stages/networking/metallb/main.tf:13" {
			t.Errorf("the settings are %q", all)
		}
	}
	c := loaded(t, changes)
	want := []string{"clusters/blue/proxmox/secrets.tfvars:2", "clusters/blue/proxmox/terraform.tfvars:2",
		ofBlue + ":2", ofAll + ":2", "castle.hcl:1"}
	for i, w := range c.Settings(name, nil) {
		if got := syntax.Place(w.At()); got != want[i] {
			t.Errorf("setting %d is at %s, want %s", i, got, want[i])
		}
	}
	committed := 0
	for _, w := range c.Committed() {
		if w.Name == name && w.Value.Type() == cty.String {
			committed++
		}
	}
	if committed != 4 {
		t.Errorf("%d committed values, want all but that of secrets.tfvars", committed)
	}
}

func TestSharedValuesMayBeOfOtherClusters(t *testing.T) {
	c := loaded(t, aCluster+aNeighbour+"-- "+ofAll+" --\naddress_pool = [\"192.0.2.1-192.0.2.9\"]\n")
	if n := len(c.Settings("address_pool", nil)); n != 1 {
		t.Errorf("%d settings of address_pool", n)
	}
	// stage.hcl of vault-jwt sets vault_token, and a stage of red takes it from the files.
	loaded(t, "-- clusters/blue/proxmox/cluster.hcl --\n"+
		"stage \"infisical\" { source = \"secrets/infisical\" }\n"+
		"stage \"keys\" { source = \"secrets/keys\" }\n"+
		"stage \"vault-jwt\" { source = \"secrets/vault-jwt\" }\n"+
		"-- clusters/blue/proxmox/terraform.tfvars --\n"+
		"-- clusters/red/proxmox/cluster.hcl --\nstage \"own\" { source = \"secrets/own\" }\n"+
		"-- library/secrets/own/stage.hcl --\nstage {}\n-- library/secrets/own/main.tf --\n"+
		"variable \"vault_token\" { type = string }\n-- "+ofAll+" --\nvault_token = \"x\"\n")
}

func TestMistakesInSharedValuesAreFound(t *testing.T) {
	run(t, []problemTest{
		{"a typo", aCluster + aNeighbour + "-- " + ofAll + " --\n\nadress_pool = []\n", []string{
			ofAll + ":2 | variable adress_pool: not declared | No stage of any cluster in clusters | " +
				`Did you mean "address_pool"?`}},
		{"a value of a stage that none of these clusters has", aCluster + aNeighbour + "-- " + ofBlue +
			" --\naddress_pool = []\n", []string{
			ofBlue + ":1 | variable address_pool: not declared | No stage of any cluster in clusters/blue"}},
		{"a value that stage.hcl sets", aCluster + "-- " + ofBlue + " --\nnamespace = \"x\"\n" +
			"-- clusters/blue/proxmox/cluster.hcl --\n" +
			"stage \"infisical\" { source = \"secrets/infisical\" }\n" +
			"stage \"metallb\" { source = \"networking/metallb\" }\n" +
			"stage \"address-pool\" { source = \"networking/address-pool\" }\n" +
			"stage \"proxmox-talos\" { source = \"platform/bare\" }\n" +
			"-- clusters/blue/proxmox/terraform.tfvars --\naddress_pool = []\n", []string{
			ofBlue + ":1 | variable namespace: set here, but stage address-pool wires it"}},
		{"an unsuitable value", aCluster + "-- " + ofAll + " --\nmetallb_chart_version = []\n", []string{
			ofAll + ":1 | variable metallb_chart_version"}},
		{"a file that castle does not read", aCluster + "-- clusters/blue/terraform.tfvars --\n" +
			"-- clusters/secrets.tfvars --\n-- clusters/blue/proxmox/common.tfvars --\n", []string{
			"clusters/blue/proxmox/common.tfvars:1 | not read there | " +
				"Move them to clusters/blue/proxmox/terraform.tfvars.",
			"clusters/blue/terraform.tfvars:1 | Move them to clusters/blue/common.tfvars.",
			"clusters/secrets.tfvars:1 | Move them to clusters/blue/proxmox/secrets.tfvars."}},
		{"a syntax error", aCluster + "-- " + ofAll + " --\nmetallb_chart_version = \"\n", []string{
			ofAll + ":1 | quote missing"}},
	})
	// The cluster red may have what castle cannot read.
	c, diags := Load(repository(t, aCluster+"-- clusters/red/proxmox/cluster.hcl --\nstage {\n-- "+ofAll+
		" --\nanything = 1\n"))
	if diags.HasErrors() || filepath.Base(c.Dir) != "proxmox" {
		t.Error(diags)
	}
}
