package scaffold

import (
	"fmt"
	"slices"
	"strings"
)

// Key is a value that a template asks for.
type Key struct {
	Name     string
	Question string // with an example
	Quiet    bool   // castle uses the proposal without asking: it suits nearly all
	Store    string // the key is needed only if the key secrets has this answer; empty: always

	borrowed bool     // only another cluster's value can be proposed
	needs    []string // keys that form and proposal depend on
	form     form
	proposal func(*answers) string
}

// Keys returns the keys of castle's own templates, in the order of the questions: a key follows those that
// it depends on.
func Keys() []*Key {
	network := []string{"network"}
	machines := []string{"network", "gateway", "dns", "control_planes", "workers"}
	return []*Key{
		{Name: "proxmox_endpoint", Question: "Address of the Proxmox API, such as https://192.168.1.10:8006/",
			form: endpointForm, proposal: fromOthers("proxmox_endpoint")},
		{Name: "proxmox_node", Question: "Name of the Proxmox node, as its web interface shows it",
			form: hostForm, proposal: fromOthers("proxmox_node_name")},
		{Name: "image_datastore", Question: "Proxmox storage that takes Talos' image (content type import)",
			Quiet: true, form: wordForm, proposal: always("local")},
		{Name: "disk_datastore", Question: "Proxmox storage of the machines' disks", Quiet: true,
			form: wordForm, proposal: always("local-lvm")},
		{Name: "bridge", Question: "Proxmox bridge of the machines", Quiet: true, form: wordForm,
			proposal: always("vmbr0")},

		{Name: "network", Question: "Network of the machines, such as 192.168.1.0/24", form: networkForm,
			proposal: proposeNetwork},
		{Name: "gateway", Question: "Gateway of that network, such as 192.168.1.1", borrowed: true,
			needs: network, form: gatewayForm, proposal: proposeGateway},
		{Name: "dns", Question: "Name server of the machines", Quiet: true, needs: []string{"gateway"},
			form:     addressForm,
			proposal: func(a *answers) string { return a.address("gateway").String() }},

		{Name: "control_planes", Question: "How many control planes, an odd number", form: controlPlanesForm,
			proposal: always("3")},
		{Name: "workers", Question: "How many workers", form: workersForm, proposal: always("2")},
		{Name: "vip", Question: "Virtual address of the Kubernetes API, outside of the router's DHCP range",
			needs: machines, form: vipForm, proposal: proposeVIP},
		{Name: "node_addresses", Question: "Addresses of the machines, FIRST-LAST or a list, outside of " +
			"the router's DHCP range or reserved there",
			needs: append([]string{"vip"}, machines...), form: nodeAddressesForm, proposal: proposeNodes},
		{Name: "install_disk", Question: "Disk of the machines that Talos is installed on, such as " +
			"/dev/nvme0n1: its content is lost", form: diskForm, proposal: always("/dev/sda")},
		{Name: "longhorn_disk", Question: "Another disk of the workers, for Longhorn",
			needs: []string{"install_disk"}, form: longhornDiskForm, proposal: proposeLonghornDisk},
		{Name: "metallb_addresses", Question: "Addresses that Services get, FIRST-LAST, outside of the " +
			"router's DHCP range",
			needs: append([]string{"vip", "node_addresses"}, machines...), form: poolsForm,
			proposal: proposePool},
		{Name: "vmid_start", Question: "First of the cluster's VM ids",
			needs: []string{"control_planes", "workers"}, form: vmidForm, proposal: proposeVMID},

		{Name: "secrets", Question: "Store of the cluster's secrets: infisical, vault, or local for a file " +
			"secrets.tfvars",
			form: storeForm, proposal: always("infisical")},
		{Name: "infisical_host", Store: "infisical", Question: "Address of Infisical", Quiet: true,
			form: urlForm, proposal: always("https://eu.infisical.com")},
		{Name: "infisical_project_id", Store: "infisical",
			Question: `Id of the Infisical project (Project settings, "Copy project id")`,
			form:     projectForm, proposal: fromOthers("infisical_project_id")},
		{Name: "infisical_project_slug", Store: "infisical",
			Question: "Slug of the Infisical project (Project settings)",
			form:     slugForm, proposal: fromOthers("infisical_project_slug")},
		{Name: "infisical_environment", Store: "infisical",
			Question: "Slug of the environment inside the project", Quiet: true, form: slugForm,
			proposal: always("prod")},

		{Name: "vault_address", Store: "vault", Question: "Address of the Vault, such as " +
			"https://vault.example.org:8200",
			form: urlForm, proposal: fromOthers("vault_address")},

		{Name: "git_url", Question: "Git repository that Flux follows, such as https://github.com/me/cluster",
			form: gitForm},
		{Name: "git_branch", Question: "Branch that Flux follows", Quiet: true, form: wordForm,
			proposal: always("main")},
		{Name: "git_path", Question: "Folder of the cluster in the Git repository", Quiet: true,
			form:     pathForm,
			proposal: func(a *answers) string { return "./clusters/" + a.cluster }},
	}
}

// derived returns the values that castle computes, with the keys that they need.
func derived() map[string][]string {
	return map[string][]string{
		"cluster": nil, "platform": nil, "reference": nil,
		"replicas": {"workers"},
		"vm_ids":   {"vmid_start"},
		"nodes":    {"node_addresses"},
	}
}

// keysOf returns the keys that a template's files mention, with their dependencies. Each name that castle
// does not know becomes a plain text key.
func keysOf(parts []part) []*Key {
	all := Keys()
	var wanted, own []string
	var want func(name string)
	want = func(name string) {
		if slices.Contains(wanted, name) {
			return
		}
		wanted = append(wanted, name)
		if from, is := derived()[name]; is {
			for _, f := range from {
				want(f)
			}
		} else if i := slices.IndexFunc(all, func(k *Key) bool { return k.Name == name }); i >= 0 {
			for _, f := range all[i].needs {
				want(f)
			}
		} else {
			own = append(own, name)
		}
	}
	for _, p := range parts {
		for _, name := range p.mentions() {
			want(name)
		}
	}
	keys := slices.DeleteFunc(all, func(k *Key) bool { return !slices.Contains(wanted, k.Name) })
	for _, name := range own {
		keys = append(keys, &Key{Name: name, Question: "The template's own " + name,
			form: func(_ *answers, s string) (any, error) { return s, nil }})
	}
	return keys
}

// Usage lists the keys for a help text.
func Usage() string {
	var b strings.Builder
	for _, k := range Keys() {
		fmt.Fprintf(&b, "  %-22s  %s\n", k.Name, k.Question)
	}
	return b.String()
}

func always(text string) func(*answers) string { return func(*answers) string { return text } }
