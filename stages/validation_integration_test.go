//go:build integration

package stages_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// secrets are what castle would wire from the secrets layer.
const secrets = `
cluster_name                   = "blue"
infisical_folder               = "/ephemeral-castle/blue/proxmox"
proxmox_api_token              = "castle@pve!castle=0b0e7f5c"
talos_images                   = { proxmox = "local:import/blue-talos.qcow2" }
serviceaccount_private_key_pem = ""
serviceaccount_public_key_pem  = ""
client_configuration = { ca_certificate = "", client_certificate = "", client_key = "" }
machine_secrets = {
  certs = {
    etcd = { cert = "", key = "" }, k8s = { cert = "", key = "" }, k8s_aggregator = { cert = "", key = "" }
    k8s_serviceaccount = { key = "" }, os = { cert = "", key = "" }
  }
  cluster    = { id = "", secret = "" }
  secrets    = { bootstrap_token = "", secretbox_encryption_secret = "" }
  trustdinfo = { token = "" }
}
`

// frame removes the lines that Terraform draws beside an error.
var frame = strings.NewReplacer("╷", "", "│", "", "╵", "")

// errorMessage reads the error_message of a variable's only validation whose condition
// contains a text: the module alone holds the message.
func errorMessage(t *testing.T, files []string, variable, condition string) string {
	t.Helper()
	var found []string
	for _, name := range files {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		file, problems := hclsyntax.ParseConfig(content, name, hcl.InitialPos)
		if problems.HasErrors() {
			t.Fatal(problems)
		}
		for _, v := range file.Body.(*hclsyntax.Body).Blocks {
			if v.Type != "variable" || v.Labels[0] != variable {
				continue
			}
			for _, b := range v.Body.Blocks {
				expr := b.Body.Attributes["condition"].Expr.Range().SliceBytes(content)
				if b.Type != "validation" || !strings.Contains(string(expr), condition) {
					continue
				}
				message, problems := b.Body.Attributes["error_message"].Expr.Value(nil)
				if problems.HasErrors() {
					t.Fatal(problems)
				}
				found = append(found, message.AsString())
			}
		}
	}
	if len(found) != 1 || found[0] == "" {
		t.Fatalf("variable %s has %d validations with %s: %q", variable, len(found), condition, found)
	}
	return found[0]
}

// evaluated lets real Terraform judge variables alone: without resources it needs
// no provider. It returns what Terraform says, in one line.
func evaluated(t *testing.T, files []string, values ...string) (string, error) {
	t.Helper()
	dir := t.TempDir()
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(file)), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// Files are read in the order of their names; the last value counts.
	for i, v := range values {
		if err := os.WriteFile(filepath.Join(dir, string(rune('a'+i))+".auto.tfvars"), []byte(v),
			0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"init", "-input=false", "-no-color"},
		{"plan", "-input=false", "-no-color", "-compact-warnings"}} {
		cmd := exec.CommandContext(t.Context(), "terraform", args...)
		cmd.Dir = dir
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "TF_CLI_CONFIG_FILE=" + os.DevNull,
			"CHECKPOINT_DISABLE=1"}
		out, err := cmd.CombinedOutput()
		if err != nil {
			return strings.Join(strings.Fields(frame.Replace(string(out))), " "), err
		}
	}
	return "", nil
}

func clusterFolder(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile("../clusters/" + name + "/proxmox/terraform.tfvars")
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func TestThePlatformRefusesMachinesThatCannotBeACluster(t *testing.T) {
	files, err := filepath.Glob("platform/proxmox-machines/variables*.tf")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"blue", "mini", "everything", "addresses", "golden", "sources"} {
		if out, err := evaluated(t, files, clusterFolder(t, name), secrets); err != nil {
			t.Errorf("%s is refused: %s", name, out)
		}
	}
	for _, c := range []struct{ value, variable, condition string }{
		{`vip = "192.168.1.211"`, "vip", "node.address"},
		{`vip = "192.168.1.1"`, "vip", "var.vip != var.network.gateway"},
		{`vip = "10.0.0.1"`, "vip", "var.network.prefix"},
		{`network = { gateway = "192.168.2.1" }`, "network", "cidrhost(\"${node.address}"},
		{`network = { gateway = "fd00:1::1" }`, "network", "var.network.prefix >= 48"},
		{`network = { gateway = "192.168.1.1", secondary_subnet = "fd00:1::1/64" }`, "network",
			"split(\"/\", var.network.secondary_subnet)[0]"},
		{`network = { gateway = "192.168.1.1", secondary_subnet = "fd00:1::/64" }`, "network",
			"node.secondary_address == null) =="},
		{`network = { gateway = "192.168.1.1", secondary_gateway = "192.168.1.2" }`, "network",
			"var.network.secondary_gateway}/32"},
		{`network = { gateway = "192.168.1.1", secondary_subnet = "fd00:1::/64", secondary_gateway = ` +
			`"fd00:2::1" }`, "network", "^fe80:"},
		{`nodes = { a = { role = "controlplane", vm_id = 421, address = "192.168.1.211" }, b = { role = ` +
			`"controlplane", vm_id = 422, address = "192.168.1.212" } }`,
			"nodes", "% 2 == 1"},
		{`nodes = { a = { role = "controlplane", vm_id = 421, address = "192.168.1.211" }, b = { role = ` +
			`"worker", vm_id = 421, address = "192.168.1.212" } }`,
			"nodes", "distinct([for node in var.nodes : node.vm_id])"},
		{`nodes = { a = { role = "controlplane", vm_id = 421, address = "192.168.1.211" }, b = { role = ` +
			`"worker", vm_id = 422, address = "192.168.1.211" } }`,
			"nodes", "distinct([for name, node in var.nodes"},
		{`nodes = { a = { role = "controlplane", vm_id = 421, dhcp = false } }`,
			"nodes", "node.address != null || concat"},
		{"network = { gateway = \"fd00:1::1\", prefix = 64 }\nvip = null\n" +
			`nodes = { a = { role = "controlplane", vm_id = 421 } }`, "network", "node.address != null"},
		{`nodes = { a = { role = "controlplane", vm_id = 500, address = "192.168.1.211" } }`,
			"vm_id_range", "node.vm_id"},
		{`nodes = { a = { role = "master", vm_id = 421, address = "192.168.1.211" } }`,
			"nodes", `contains(["controlplane", "worker"], node.role)`},
		{`nodes = { a = { role = "controlplane", vm_id = 421, address = "192.168.1.211", memory = 4096.5 } }`,
			"nodes", "floor(number) == number"},
		{`network = { gateway = "192.168.1.1", vlan_id = 4095 }`, "network", "4094"},
		{`network = { gateway = "192.168.1.1", vlan_id = 10.5 }`, "network", "4094"},
		{`network = { gateway = "192.168.1.1", dns = ["router.lan"] }`, "network", "server"},
		{`network = { gateway = "192.168.1.1", dns = ["fd00::1", ""] }`, "network", "server"},
		{`network = { gateway = "192.168.1.1", bridge = "" }`, "network", "var.network.bridge"},
		{`proxmox_node_name = "pve.lan/"`, "proxmox_node_name", "regex"},
		{`proxmox_disk_datastore = "local-lvm:vm-disk"`, "proxmox_disk_datastore", "regex"},
		{"proxmox_insecure = true\nproxmox_ca_file = \"/ca.pem\"", "proxmox_insecure", "proxmox_ca_file"},
	} {
		out, err := evaluated(t, files, clusterFolder(t, "blue"), secrets, c.value)
		want := errorMessage(t, files, c.variable, c.condition)
		if err == nil || !strings.Contains(out, want) {
			t.Errorf("%s: want %q, got %q", c.value, want, out)
		}
	}
}

// Hardware is refused for a machine and for all, with the attribute's name.
func TestThePlatformRefusesHardwareThatCannotBe(t *testing.T) {
	files, err := filepath.Glob("platform/proxmox-machines/variables*.tf")
	if err != nil {
		t.Fatal(err)
	}
	const node = `nodes = { a = { role = "controlplane", vm_id = 421, address = "192.168.1.211", %s } }`
	for _, c := range []struct {
		value, condition string
		one              bool // it is an attribute of one machine, or of several values
	}{
		{`datastore_id = "/mnt/ssd"`, "longhorn_datastore_id", false},
		{`disks = { scsi2 = { size = 1, datastore_id = "a b" } }`, "longhorn_datastore_id", false},
		{`bridge = "vmbr 0"`, ".bridge", false},
		{`network_devices = [{ bridge = "" }, { bridge = "a/b" }]`, ".bridge", false},
		{`vlan_id = 4095`, "4094", false},
		{`network_devices = [{ vlan_id = 1.5 }]`, "4094", false},
		{`mtu = 100`, "65520", false},
		{`disks = { scsi1 = { size = 1 } }`, "[12][0-9]", false},
		{`disks = { scsi2 = { size = 0 } }`, "[12][0-9]", false},
		{`cpu_units = 20000`, "cpu_units", false},
		{`cpu_type = "kvm64"`, "cpu_type", false},
		{`bios = "uefi"`, "bios", false},
		{`machine_type = "q36"`, "pc-i440fx", false},
		{`startup = { order = -1 }`, "up_delay", false},
		{`image = "golden.qcow2"`, `.image, "local`, false},
		{`ha = { max_restart = 11 }`, "ha.max_restart", false},
		{`template = { vm_id = 90.5 }`, "template.vm_id >= 100", false},
		{`template = { vm_id = 9000 }, image = "local:import/golden.qcow2"`, "given.image", true},
		{`pci = [{ mapping = "0000:01:00.0" }]`, "[*].mapping", false},
		{`usb = [{ mapping = "a1" }, { mapping = "a2" }, { mapping = "a3" }, { mapping = "a4" }, ` +
			`{ mapping = "a5" }]`, "<= 16", false},
		{`mac_address = "01:00:5E:00:00:01"`, "02468ACEace", true},
		{`mac_address = "BC:24:11:00:00:01", network_devices = [{ mac_address = "bc:24:11:00:00:01" }]`,
			"lower(mac)", true},
		{`network_devices = [{ address = "10.0.20.5/33" }]`, "card.address == null ||", true},
		{`memory_floating = 9000`, ").memory_floating", true},
		{`machine_type = "pc", pci = [{ mapping = "gpu" }]`, "device.pcie", true},
	} {
		values := map[string]string{"nodes": fmt.Sprintf(node, c.value)}
		if !c.one {
			values["machine_defaults"] = "machine_defaults = { controlplane = { " + c.value + " } }"
		}
		for variable, value := range values {
			out, err := evaluated(t, files, clusterFolder(t, "blue"), secrets, value)
			want := errorMessage(t, files, variable, c.condition)
			if err == nil || !strings.Contains(out, want) {
				t.Errorf("%s: want %q, got %q", value, want, out)
			}
		}
	}
	for _, c := range []struct{ value, condition string }{
		{`nodes = { a = { role = "controlplane", vm_id = 521, address = "192.168.1.111" } }`, "> 1"},
		{`machine_defaults = {}`, "given.ha.enabled"},
		{`proxmox_node_name = "pve2"`, "distinct"},
	} {
		out, err := evaluated(t, files, clusterFolder(t, "golden"), secrets, c.value)
		if want := errorMessage(t, files, "proxmox_separate_controlplanes", c.condition); err == nil ||
			!strings.Contains(out, want) {
			t.Errorf("%s: want %q, got %q", c.value, want, out)
		}
	}
	out, err := evaluated(t, files, clusterFolder(t, "golden"), secrets,
		"machine_defaults = { all = { template = { vm_id = 521 }, ha = {} } }")
	want := errorMessage(t, files, "vm_id_range", "given.template")
	if err == nil || !strings.Contains(out, want) {
		t.Errorf("want %q, got %q", want, out)
	}
	// What a role and all give counts like the machine's own.
	for _, c := range []struct{ value, condition string }{
		{"machine_defaults = { all = { memory = 4096 }, worker = { memory_floating = 5000 } }",
			").memory_floating"},
		{`machine_defaults = { all = { machine_type = "pc" }, worker = { pci = [{ mapping = "gpu" }] } }`,
			"device.pcie"},
	} {
		out, err := evaluated(t, files, clusterFolder(t, "everything"), secrets, c.value, `nodes = {
			a = { role = "controlplane", vm_id = 481, address = "192.168.1.161" }
			b = { role = "worker", vm_id = 482, address = "192.168.1.162" }
		}`)
		if want := errorMessage(t, files, "nodes", c.condition); err == nil || !strings.Contains(out, want) {
			t.Errorf("%s: want %q, got %q", c.value, want, out)
		}
	}
}

func TestTalosRefusesValuesOfAnotherForm(t *testing.T) {
	files, err := filepath.Glob("platform/talos/variables*.tf")
	if err != nil {
		t.Fatal(err)
	}
	const wired = "vip = \"192.168.1.210\"\nmachines = { a = { role = \"controlplane\", address = " +
		"\"192.168.1.211\", reset = false, platform = \"nocloud\", uplink = \"\", " +
		"install_disk = \"/dev/sda\", longhorn_disk = null } }\n"
	for _, c := range []struct{ value, variable, condition string }{
		{`serviceaccount_issuer = "k8s.example.org"`, "serviceaccount_issuer", "^https://"},
		{`apiserver_extra_args = { service-account-issuer = "https://k8s.example.org" }`,
			"apiserver_extra_args", "service-account-issuer"},
		{`apiserver_extra_args = { "--audit-log-maxage" = "30" }`, "apiserver_extra_args", "regex"},
		{`talos_image_factory = "https://factory.example.org"`, "talos_image_factory", "regex"},
		{`talos_machine_schematics = { b = {} }`, "talos_machine_schematics", "keys(var.machines)"},
		{`talos_machine_schematics = { a = { extensions = ["iscsi-tools"] } }`, "talos_machine_schematics",
			"a-z0-9-"},
		{`talos_machine_schematics = { a = { id = "613e" } }`, "talos_machine_schematics", "{64}"},
		{`talos_machine_schematics = { a = { extensions = ["siderolabs/i915"] }, controlplane = { id = "` +
			strings.Repeat("a", 64) + `" } }`, "talos_machine_schematics", "given.id"},
		{`vip = null`, "api_endpoint", "var.vip != null"},
		{`api_endpoint = "https://api.lan"`, "api_endpoint", "regex"},
		{`api_endpoint = "192.168.1.300"`, "api_endpoint", "regex"},
		{`api_endpoint = "192.168.1.209"`, "api_endpoint", "var.api_endpoint == var.vip"},
		{`api_port = 443`, "api_port", "== 6443"},
		{`pod_subnets = ["10.244.0.0"]`, "pod_subnets", "cidrhost"},
		{`service_subnets = ["10.96.0.0/12", "10.112.0.0/12"]`, "service_subnets", "distinct"},
	} {
		out, err := evaluated(t, files, wired, secrets, c.value)
		if want := errorMessage(t, files, c.variable, c.condition); err == nil ||
			!strings.Contains(out, want) {
			t.Errorf("%s: want %q, got %q", c.value, want, out)
		}
	}
	for _, value := range []string{`talos_image_factory = "factory.example.org:8443"`,
		`api_endpoint = "api.lan"`, "vip = null\napi_endpoint = \"192.168.1.211\"",
		"vip = null\napi_endpoint = \"lb.lan\"\napi_port = 443", `vip = "fd00:1::210"`,
		`pod_subnets = ["10.244.0.0/16", "fd00:10:244::/56"]`} {
		if out, err := evaluated(t, files, wired, secrets, value); err != nil {
			t.Errorf("%s: refused: %s", value, out)
		}
	}
}

func TestSyncRefusesWhatFluxCannotFollow(t *testing.T) {
	files := []string{"gitops/sync/variables.tf"}
	const valid = `
sync_namespace = "flux-system"
sync_cluster_name = "blue"
git_url = "https://github.com/me/fleet"
git_path = "./clusters/blue"
git_branch = "feature/x.y"
git_username = "git"
git_token = "x"
sync_interval = "1h2m3.5s"
`
	if out, err := evaluated(t, files, valid); err != nil {
		t.Errorf("refused: %s", out)
	}
	for _, value := range []string{"git_url = \"oci://registry.lan:5000/me/fleet\"\noci_tag = \"v1.2\"",
		`oci_digest = "sha256:` + strings.Repeat("0a", 32) + `"`, `oci_semver = ">=1.0.0"`} {
		if out, err := evaluated(t, files, valid, value); err != nil {
			t.Errorf("%s: refused: %s", value, out)
		}
	}
	for _, c := range []struct{ value, variable, condition string }{
		{`git_url = "oci://ghcr.io/me/fleet:main"`, "git_url", "!startswith"},
		{`git_url = "oci://ghcr.io/me/fleet@sha256:00"`, "git_url", "!startswith"},
		{`oci_tag = "a b"`, "oci_tag", "regex"},
		{`oci_digest = "sha256:00"`, "oci_digest", "regex"},
		{`sync_ca_certificate = "ca.pem"`, "sync_ca_certificate", "regex"},
		{`git_branch = ""`, "git_branch", "regex"},
		{`git_branch = "refs/heads/main"`, "git_branch", "regex"},
		{`git_branch = "a b"`, "git_branch", "regex"},
		{`git_path = "./../blue"`, "git_path", "split"},
		{`sync_interval = "10"`, "sync_interval", "regex"},
	} {
		out, err := evaluated(t, files, valid, c.value)
		if want := errorMessage(t, files, c.variable, c.condition); err == nil ||
			!strings.Contains(out, want) {
			t.Errorf("%s: want %q, got %q", c.value, want, out)
		}
	}
}

func TestThePoolIsWellFormedAndHoldsNobodysAddress(t *testing.T) {
	const wired = `
%[1]s_namespace = "there"
%[1]s_vip       = "192.168.1.210"
%[1]s_nodes     = { cp-01 = "192.168.1.211", cp-02 = "fd00:1::21a" }
`
	for _, pool := range []struct{ stage, addresses, wired string }{
		{"networking/address-pool", "metallb_addresses", fmt.Sprintf(wired, "address_pool")},
		{"networking/cilium-pool", "cilium_pool_addresses", fmt.Sprintf(wired, "cilium_pool")},
	} {
		check := filepath.Join(t.TempDir(), "check.tf")
		const inside = `
resource "terraform_data" "pool" {
  lifecycle {
    precondition {
      condition     = length(local.inside) == 0
      error_message = "inside: ${join(", ", sort(local.inside))}"
    }
  }
}`
		if err := os.WriteFile(check, []byte(inside), 0o600); err != nil {
			t.Fatal(err)
		}
		files := []string{pool.stage + "/variables.tf", pool.stage + "/locals.tf", check}
		malformed := errorMessage(t, files[:2], pool.addresses, "cidrhost(entry, 0)")
		empty := errorMessage(t, files[:2], pool.addresses, "length(var."+pool.addresses+") > 0")
		for _, c := range []struct{ addresses, want string }{
			{`["192.168.1.240-192.168.1.249", "10.0.0.0/24"]`, ""},
			{`["192.168.1.200-192.168.1.210"]`, "inside: 192.168.1.210 of the Kubernetes API (vip)"},
			{`["192.168.1.211-192.168.1.220"]`, "inside: 192.168.1.211 of cp-01"},
			{`["192.168.1.0/24"]`,
				"inside: 192.168.1.210 of the Kubernetes API (vip), 192.168.1.211 of cp-01"},
			{`["192.168.1.240 - 192.168.1.249"]`, malformed},
			{`["192.168.1.240"]`, malformed},
			{`["192.168.1.240/29", "fd00:1::200/124"]`, ""},
			{`["fd00:1::210/124"]`, "inside: fd00:1::21a of cp-02"},
			{`["fd00:1::200-fd00:1::20f"]`, malformed},
			{`[]`, empty},
		} {
			out, err := evaluated(t, files, pool.wired, pool.addresses+" = "+c.addresses)
			if (err == nil) != (c.want == "") || !strings.Contains(out, c.want) {
				t.Errorf("%s: %s: want %q, got %q", pool.stage, c.addresses, c.want, out)
			}
		}
	}
}

func TestTheNetworkPluginIsOneThatTalosCanLeaveOut(t *testing.T) {
	talos := []string{"platform/talos/variables.tf", "platform/talos/variables_cni.tf",
		"platform/talos/variables_endpoint.tf"}
	cilium := []string{"platform/cilium/variables.tf"}
	const later = "talos_version = \"v1.14.0\"\ntalos_contract = \"v1.14\"\n"
	const native = "cilium_routing_mode = \"native\"\n"
	const machines, nodes = "machines = {}\nvip = \"192.168.1.210\"\n", "cilium_nodes = {}\n"
	for _, c := range []struct {
		files               []string
		wired, value        string
		variable, condition string // empty: it is accepted
	}{
		{talos, machines, `cni = "cilium"`, "", ""},
		{talos, machines, `cni = "calico"`, "cni", "contains"},
		{talos, machines + later, `cni = "cilium"`, "cni", "< 14"},
		{talos, machines + later, `cni = "flannel"`, "", ""},
		{cilium, nodes, `cilium_routing_mode = "native"`, "", ""},
		{cilium, nodes, `cilium_routing_mode = "vxlan"`, "cilium_routing_mode", "contains"},
		{cilium, nodes, `cilium_pod_cidr = "10.244.0.0"`, "cilium_pod_cidr", "can(cidrhost(var"},
		{cilium, native + nodes, `cilium_pod_cidr = "10.245.0.0/16"`, "cilium_pod_cidr",
			"cilium_pod_subnets"},
		{cilium, native + nodes, `cilium_pod_cidr = "10.244.0.0/24"`, "cilium_pod_cidr",
			"cilium_pod_subnets"},
		{cilium, native + nodes, `cilium_pod_cidr = "10.244.0.0/15"`, "", ""},
		{cilium, nodes, `cilium_pod_cidr = "10.245.0.0/16"`, "", ""}, // a tunnel does not use it
		{cilium, nodes, `cilium_chart_version = "1.18"`, "cilium_chart_version", "regex"},
	} {
		out, err := evaluated(t, c.files, c.wired, secrets, c.value)
		want := ""
		if c.variable != "" {
			want = errorMessage(t, c.files, c.variable, c.condition)
		}
		if (err == nil) != (want == "") || !strings.Contains(out, want) {
			t.Errorf("%s: want %q, got %q", c.value, want, out)
		}
	}
}
