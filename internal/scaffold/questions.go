package scaffold

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// key is a value that a template asks for, or that castle computes.
type key struct {
	name     string
	question string   // with an example
	quiet    bool     // castle uses the proposal without asking: it suits nearly all
	store    string   // the key is needed only if the key secrets has this answer; empty: always
	borrowed bool     // only another cluster's value can be proposed
	needs    []string // keys that form and proposal depend on
	form     form     // nil for a computed value
	proposal func(*answers) string
}

// allKeys returns the keys of castle's own templates, in the order of the questions: a key follows those
// that it depends on.
func allKeys() []*key {
	network := []string{"network"}
	machines := []string{"network", "gateway", "dns", "control_planes", "workers"}
	return []*key{
		{name: "cluster"}, {name: "platform"}, {name: "reference"},
		{name: "replicas", needs: []string{"workers"}},
		{name: "vm_ids", needs: []string{"vmid_start"}},
		{name: "nodes", needs: []string{"node_addresses"}},

		{name: "proxmox_endpoint", question: "Address of the Proxmox API, such as https://192.168.1.10:8006/",
			form: endpointForm, proposal: fromOthers("proxmox_endpoint")},
		{name: "proxmox_node", question: "Name of the Proxmox node, as its web interface shows it",
			form: hostForm, proposal: fromOthers("proxmox_node_name")},
		{name: "image_datastore", question: "Proxmox storage that takes Talos' image (content type import)",
			quiet: true, form: wordForm, proposal: always("local")},
		{name: "disk_datastore", question: "Proxmox storage of the machines' disks", quiet: true,
			form: wordForm, proposal: always("local-lvm")},
		{name: "bridge", question: "Proxmox bridge of the machines", quiet: true, form: wordForm,
			proposal: always("vmbr0")},

		{name: "network", question: "Network of the machines, such as 192.168.1.0/24", form: networkForm,
			proposal: proposeNetwork},
		{name: "gateway", question: "Gateway of that network, such as 192.168.1.1", borrowed: true,
			needs: network, form: address((*answers).checkUsable), proposal: proposeGateway},
		{name: "dns", question: "Name server of the machines", quiet: true, needs: []string{"gateway"},
			form:     address(func(*answers, netip.Addr) error { return nil }),
			proposal: func(a *answers) string { return a.address("gateway").String() }},

		{name: "control_planes", question: "How many control planes, an odd number", form: controlPlanesForm,
			proposal: always("3")},
		{name: "workers", question: "How many workers", form: workersForm, proposal: always("2")},
		{name: "vip", question: "Virtual address of the Kubernetes API, outside of the router's DHCP range",
			needs: machines, form: address((*answers).checkFree), proposal: proposeVIP},
		{name: "node_addresses", question: "Addresses of the machines, FIRST-LAST or a list, outside of " +
			"the router's DHCP range or reserved there",
			needs: append([]string{"vip"}, machines...), form: nodeAddressesForm, proposal: proposeNodes},
		{name: "install_disk", question: "Disk of the machines that Talos is installed on, such as " +
			"/dev/nvme0n1: its content is lost", form: diskForm, proposal: always("/dev/sda")},
		{name: "longhorn_disk", question: "Another disk of the workers, for Longhorn",
			needs: []string{"install_disk"}, form: longhornDiskForm, proposal: proposeLonghornDisk},
		{name: "metallb_addresses", question: "Addresses that Services get, FIRST-LAST, outside of the " +
			"router's DHCP range",
			needs: append([]string{"vip", "node_addresses"}, machines...), form: poolsForm,
			proposal: proposePool},
		{name: "vmid_start", question: "First of the cluster's VM ids",
			needs: []string{"control_planes", "workers"}, form: vmidForm, proposal: proposeVMID},

		{name: "secrets", question: "Store of the cluster's secrets: infisical, vault, or local for a file " +
			"secrets.tfvars",
			form: storeForm, proposal: always("infisical")},
		{name: "infisical_host", store: "infisical", question: "Address of Infisical", quiet: true,
			form: urlForm, proposal: always("https://eu.infisical.com")},
		{name: "infisical_project_id", store: "infisical",
			question: `Id of the Infisical project (Project settings, "Copy project id")`,
			form:     projectForm, proposal: fromOthers("infisical_project_id")},
		{name: "infisical_project_slug", store: "infisical",
			question: "Slug of the Infisical project (Project settings)",
			form:     slugForm, proposal: fromOthers("infisical_project_slug")},
		{name: "infisical_environment", store: "infisical",
			question: "Slug of the environment inside the project", quiet: true, form: slugForm,
			proposal: always("prod")},

		{name: "vault_address", store: "vault", question: "Address of the Vault, such as " +
			"https://vault.example.org:8200",
			form: urlForm, proposal: fromOthers("vault_address")},

		{name: "git_url", question: "Git repository that Flux follows, such as https://github.com/me/cluster",
			form: gitForm},
		{name: "git_branch", question: "Branch that Flux follows", quiet: true, form: wordForm,
			proposal: always("main")},
		{name: "git_path", question: "Folder of the cluster in the Git repository", quiet: true,
			form:     pathForm,
			proposal: func(a *answers) string { return "./clusters/" + a.cluster }},
	}
}

// keysOf returns the keys that a template's files mention, with their dependencies. Each name that castle
// does not know becomes a plain text key.
func keysOf(parts []part) []*key {
	all, wanted := allKeys(), map[string]bool{}
	var want func(name string)
	want = func(name string) {
		if wanted[name] {
			return
		}
		wanted[name] = true
		i := slices.IndexFunc(all, func(k *key) bool { return k.name == name })
		if i < 0 {
			all = append(all, &key{name: name, question: "The template's own " + name, form: anyForm})
			return
		}
		for _, need := range all[i].needs {
			want(need)
		}
	}
	for _, p := range parts {
		for _, name := range p.mentions() {
			want(name)
		}
	}
	return slices.DeleteFunc(all, func(k *key) bool { return !wanted[k.name] || k.form == nil })
}

// Usage lists the keys for a help text.
func Usage() string {
	var b strings.Builder
	for _, k := range allKeys() {
		if k.form != nil {
			fmt.Fprintf(&b, "  %-22s  %s\n", k.name, k.question)
		}
	}
	return b.String()
}

func always(text string) func(*answers) string { return func(*answers) string { return text } }
