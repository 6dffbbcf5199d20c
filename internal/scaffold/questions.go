package scaffold

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Key is one thing that a template can want to know.
type Key struct {
	Name string
	Asks string // what it is, with an example
	// Quiet keys have a default that suits nearly all: they can be set, and are not asked for.
	Quiet bool
	// Place is the answer to the key secrets with which alone this one is needed; empty: always.
	Place string

	// borrowed keys have a proposal only where another cluster says it.
	borrowed bool
	from     []string // keys whose answers the form or the proposal needs
	form     func(*Order, string) (any, error)
	proposal func(*Order) string
}

// errUndecided is why an answer cannot be judged: one that it depends on is missing or wrong.
var errUndecided = errors.New("depends on an answer that is missing or wrong")

// Undecided reports whether an answer could not be judged for want of another.
func Undecided(err error) bool { return errors.Is(err, errUndecided) }

// Keys is every key that castle's own templates know, in the order to ask in: an
// answer can only be judged when those that it depends on are there.
func Keys() []*Key {
	network := []string{"network"}
	machines := []string{"network", "gateway", "dns", "control_planes", "workers"}
	return []*Key{
		{Name: "proxmox_endpoint", Asks: "Address of the Proxmox API, such as https://192.168.1.10:8006/",
			form: matching(`^https://[^/\s@]+/?$`, "a https:// address without a path"), proposal: fromOthers("proxmox_endpoint")},
		{Name: "proxmox_node", Asks: "Name of the Proxmox node, as the tree in its web interface shows it",
			form: matching(`^[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?$`, "a host name without a domain"), proposal: fromOthers("proxmox_node_name")},
		{Name: "image_datastore", Asks: "Proxmox storage that takes Talos' image (content type import)", Quiet: true, form: word, proposal: always("local")},
		{Name: "disk_datastore", Asks: "Proxmox storage of the machines' disks", Quiet: true, form: word, proposal: always("local-lvm")},
		{Name: "bridge", Asks: "Proxmox bridge of the machines", Quiet: true, form: word, proposal: always("vmbr0")},

		{Name: "network", Asks: "Network of the machines, such as 192.168.1.0/24", form: networkForm, proposal: proposeNetwork},
		{Name: "gateway", Asks: "Gateway of that network, such as 192.168.1.1", borrowed: true, from: network, form: gatewayForm, proposal: proposeGateway},
		{Name: "dns", Asks: "Name server of the machines", Quiet: true, from: []string{"gateway"}, form: addressForm,
			proposal: func(o *Order) string { return o.address("gateway").String() }},

		{Name: "control_planes", Asks: "How many control planes, an odd number", form: controlPlanesForm, proposal: always("3")},
		{Name: "workers", Asks: "How many workers", form: workersForm, proposal: always("2")},
		{Name: "vip", Asks: "Virtual address of the Kubernetes API, outside of the router's DHCP range", from: machines, form: vipForm, proposal: proposeVIP},
		{Name: "node_addresses", Asks: "Addresses of the machines, FIRST-LAST or a list, outside of the router's DHCP range or reserved there",
			from: append([]string{"vip"}, machines...), form: nodeAddressesForm, proposal: proposeNodes},
		{Name: "install_disk", Asks: "Disk of the machines that Talos is installed on, such as /dev/nvme0n1: what stands there is lost", form: diskForm, proposal: always("/dev/sda")},
		{Name: "longhorn_disk", Asks: "Another disk of the workers, for Longhorn", from: []string{"install_disk"}, form: longhornDiskForm, proposal: proposeLonghornDisk},
		{Name: "metallb_addresses", Asks: "Addresses that Services get, FIRST-LAST, outside of the router's DHCP range",
			from: append([]string{"vip", "node_addresses"}, machines...), form: poolsForm, proposal: proposePool},
		{Name: "vmid_start", Asks: "First of the cluster's VM ids", from: []string{"control_planes", "workers"}, form: vmidForm, proposal: proposeVMID},

		{Name: "secrets", Asks: "Where the cluster's secrets are: infisical, vault, or local for a file secrets.tfvars",
			form: matching(`^(infisical|vault|local)$`, "infisical, vault or local"), proposal: always("infisical")},
		{Name: "infisical_host", Place: "infisical", Asks: "Address of Infisical", Quiet: true, form: matching(`^https://[^/\s]+$`, "a https:// address without a path"), proposal: always("https://eu.infisical.com")},
		{Name: "infisical_project_id", Place: "infisical", Asks: `Id of the Infisical project (Project settings, "Copy project id")`,
			form: matching(`^[0-9A-Za-z-]{8,}$`, "an id such as 8f3c1d52-6a0e-4b7f-9d21-5e4c7a90b6d3"), proposal: fromOthers("infisical_project_id")},
		{Name: "infisical_project_slug", Place: "infisical", Asks: "Slug of the Infisical project (Project settings)",
			form: matching(`^[a-z0-9][a-z0-9-]*$`, "lower-case letters, digits and hyphens"), proposal: fromOthers("infisical_project_slug")},
		{Name: "infisical_environment", Place: "infisical", Asks: "Slug of the environment inside the project", Quiet: true, form: matching(`^[a-z0-9][a-z0-9-]*$`, "lower-case letters, digits and hyphens"), proposal: always("prod")},

		{Name: "vault_address", Place: "vault", Asks: "Address of the Vault, such as https://vault.example.org:8200",
			form: matching(`^https://[^/\s]+$`, "a https:// address without a path"), proposal: fromOthers("vault_address")},

		{Name: "git_url", Asks: "Git repository that Flux follows, such as https://github.com/me/cluster",
			form: matching(`^https://[^/@\s]+/\S+$`, "a https:// address without credentials in it")},
		{Name: "git_branch", Asks: "Branch that Flux follows", Quiet: true, form: word, proposal: always("main")},
		{Name: "git_path", Asks: "Folder of the cluster in the Git repository", Quiet: true, form: matching(`^\./\S*$`, "a path that begins with ./"),
			proposal: func(o *Order) string { return "./clusters/" + o.Cluster }},
	}
}

// derived are what a template can use that follows from answers, and from which.
func derived() map[string][]string {
	return map[string][]string{
		"cluster": nil, "platform": nil, "reference": nil,
		"replicas": {"workers"},
		"vm_ids":   {"vmid_start"},
		"nodes":    {"node_addresses"},
	}
}

// keysOf returns the keys that a template's files mention, those that these depend
// on, and a plain one for each that castle does not know.
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
			for _, f := range all[i].from {
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
		keys = append(keys, &Key{Name: name, Asks: "The template's own " + name, form: func(_ *Order, s string) (any, error) { return s, nil }})
	}
	return keys
}

// Usage describes the keys for a help text.
func Usage() string {
	var b strings.Builder
	for _, k := range Keys() {
		fmt.Fprintf(&b, "  %-22s  %s\n", k.Name, k.Asks)
	}
	return b.String()
}

func always(text string) func(*Order) string { return func(*Order) string { return text } }
