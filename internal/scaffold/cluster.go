package scaffold

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/siderolabs/gen/xslices"

	"github.com/ephemeral-castle/castle/internal/check"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/folders"
	"github.com/ephemeral-castle/castle/internal/naming"
	"github.com/ephemeral-castle/castle/internal/syntax"
)

// NewCluster is a cluster to generate: a template and the answers so far.
type NewCluster struct {
	Name, Platform, Template string
	// Command is the user's command line, which an error completes to an example.
	Command string

	repository string
	templates  fs.FS
	parts      []part
	skeleton   *skeleton // of Flux's repository; nil without --gitops
	keys       []*key
	answers    answers
	only       bool           // no other platform has a cluster of this name
	machines   []Node         // imported ones; nil without an import
	fixed      map[string]any // answers that follow from them
	settings   []Setting
}

// errDependency reports that the form of an answer depends on another one that is missing or wrong.
var errDependency = errors.New("depends on an answer that is missing or wrong")

// Begin reads a template and the repository's clusters. label is "green" or
// "green/proxmox"; the default platform is the template's first word.
func Begin(o config.Options, label, template string) (*NewCluster, error) {
	templates := layered(o.Repository, o.Templates)
	parts, err := readTemplate(templates, template)
	if err != nil {
		return nil, err
	}
	name, platform, given := strings.Cut(label, "/")
	if !given {
		platform, _, _ = strings.Cut(template, "-")
	}
	if err := naming.Check(label, "choose another", name, platform); err != nil {
		return nil, err
	}
	if err := checkVacant(o.Repository, name, platform); err != nil {
		return nil, err
	}
	c := &NewCluster{
		Name: name, Platform: platform, Template: template, only: true,
		repository: o.Repository, templates: templates, parts: parts, keys: keysOf(parts),
		answers: answers{cluster: name, values: map[string]any{}},
	}
	labels, err := folders.Clusters(o.Repository)
	if err != nil {
		return nil, err
	}
	for _, label := range labels {
		o.Cluster = label
		loaded, _ := config.Load(o) // castle check reports the problems of other clusters
		c.answers.others = append(c.answers.others, check.ReservationsOf(loaded))
		c.only = c.only && !strings.HasPrefix(label, name+"/")
	}
	return c, nil
}

// Label returns the cluster's full name: "green/proxmox".
func (c *NewCluster) Label() string { return c.Name + "/" + c.Platform }

// Fill answers every key: from given or with castle's proposal. It returns the proposals that it took. The
// error joins all missing and invalid answers.
func (c *NewCluster) Fill(given map[string]string) (chosen []string, err error) {
	wrong := c.unknown(given)
	var missing []string
	stores := false // the store of the secrets was not given, and requires answers
	for _, k := range c.keys {
		text, isGiven := given[k.name]
		proposal := c.propose(k)
		switch {
		case !c.uses(k):
			if isGiven {
				wrong = append(wrong, c.unused(k))
			}
			continue
		case isGiven:
		case proposal == "":
			if k.borrowed || c.answers.has(k.needs...) { // else a proposal follows from missing answers
				if _, decided := given["secrets"]; k.store != "" && !decided && !stores {
					missing, stores = append(missing, "\n  secrets                 infisical, vault or "+
						"local; infisical, which requires the next ones, if it is not given"), true
				}
				missing = append(missing, fmt.Sprintf("\n  %-22s  %s", k.name, k.question+k.more))
			}
			continue
		default:
			text = proposal
			if !k.quiet && !k.usual {
				chosen = append(chosen, k.name+" = "+text)
			}
		}
		if err := c.answer(k, text); err != nil && !errors.Is(err, errDependency) {
			wrong = append(wrong, err)
		}
	}
	if len(missing) > 0 {
		example := ""
		if flags := c.example(given, stores); len(wrong) == 0 && flags != "" {
			example = "; for example:\n    " + c.Command + flags
		}
		ways := "give each with --set KEY=VALUE, all in a file with --answers FILE, or on a terminal"
		if c.machines != nil {
			ways = "give each with --set KEY=VALUE, or all in a file with --answers FILE"
		}
		wrong = append(wrong, fmt.Errorf("%s requires answers:%s\n  %s%s", c.Label(),
			strings.Join(missing, ""), ways, example))
	}
	return chosen, errors.Join(wrong...)
}

// unknown returns an error for each given answer whose key the template does not have.
func (c *NewCluster) unknown(given map[string]string) (wrong []error) {
	names := xslices.Map(c.keys, func(k *key) string { return k.name })
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if !slices.Contains(names, name) {
			wrong = append(wrong, fmt.Errorf("%s: template %s has no such key%s", name, c.Template,
				syntax.DidYouMean(name, names)))
		}
	}
	return wrong
}

func (c *NewCluster) unused(k *key) error {
	return fmt.Errorf("%s: only used with secrets = %s", k.name, k.store)
}

// example returns flags that complete the given answers, "" if it finds none that fit. local: with the store
// of the secrets that requires no answers of its own.
func (c *NewCluster) example(given map[string]string, local bool) (flags string) {
	trial := *c
	trial.answers.values = map[string]any{}
	maps.Copy(trial.answers.values, c.fixed)
	for _, k := range c.keys {
		text, isGiven := given[k.name]
		if !isGiven && !(local && k.name == "secrets") {
			text = trial.propose(k)
		}
		if !trial.uses(k) {
			continue
		}
		if text == "" {
			text = k.name
			if k.example != nil {
				text = k.example(&trial.answers)
			}
			flags += fmt.Sprintf(" --set %s=%s", k.name, text)
		}
		if trial.answer(k, text) != nil {
			return ""
		}
	}
	return flags
}

// uses reports whether k is needed with the answers so far.
func (c *NewCluster) uses(k *key) bool {
	return k.store == "" || c.answers.values["secrets"] == k.store
}

// answer sets an answer, or returns its problem. Earlier keys must be answered.
func (c *NewCluster) answer(k *key, text string) error {
	text = strings.TrimSpace(text)
	if text == "" {
		return fmt.Errorf("%s is empty", k.name)
	}
	if strings.ContainsAny(text, "\"\\\n\r") || strings.Contains(text, "${") || strings.Contains(text, "%{") {
		return fmt.Errorf(`%s: an answer cannot contain ", \, ${ or %%{`, k.name)
	}
	if !c.answers.has(k.needs...) {
		return errDependency
	}
	v, err := k.form(&c.answers, text)
	if err != nil {
		return fmt.Errorf("%s: %w", k.name, err)
	}
	c.answers.values[k.name] = v
	return nil
}

// propose returns castle's proposal, "" if it has none.
func (c *NewCluster) propose(k *key) string {
	if k.proposal == nil || !c.answers.has(k.needs...) {
		return ""
	}
	return k.proposal(&c.answers)
}

// nodes returns the cluster's machines, control planes first.
func (a *answers) nodes(addresses []netip.Addr) (nodes []Node) {
	for i, address := range addresses {
		n := Node{Name: fmt.Sprintf("cp-%02d", i+1), ControlPlane: true, ID: a.count("vmid_start") + i,
			Address: address}
		if w := i - a.count("control_planes"); w >= 0 {
			n.Name, n.ControlPlane = fmt.Sprintf("worker-%02d", w+1), false
		}
		nodes = append(nodes, n)
	}
	return nodes
}

// reference returns the shortest name that commands find the cluster by.
func (c *NewCluster) reference() string {
	if c.only {
		return c.Name
	}
	return c.Label()
}

// data returns the values that the template's files are rendered with.
func (c *NewCluster) data() map[string]any {
	data := map[string]any{"cluster": c.Name, "platform": c.Platform, "reference": c.reference()}
	a := &c.answers
	maps.Copy(data, a.values)
	data["replicas"] = min(cmp.Or(a.count("workers"), a.count("control_planes")), 3)
	if addresses := a.nodeAddresses(); len(addresses) > 0 {
		data["nodes"] = a.nodes(addresses)
	}
	if c.machines != nil {
		data["nodes"] = c.imported()
	}
	if a.count("vmid_start") > 0 {
		ids := a.ids()
		data["vm_ids"] = map[string]int{"first": ids.First, "last": ids.Last}
	}
	return data
}

// known returns the keys that the files of Flux's repository may mention: castle asks for no others.
func (c *NewCluster) known() (names []string) {
	for _, k := range allKeys() {
		if k.form == nil {
			names = append(names, k.name)
		}
	}
	return append(names, xslices.Map(c.keys, func(k *key) string { return k.name })...)
}

// key is a value that a template asks for, or that castle computes.
type key struct {
	name     string
	question string
	more     string   // completes the question where no proposal follows
	why      string   // one line for the user who is asked
	usual    bool     // the proposal suits nearly all: castle does not name it among its choices
	quiet    bool     // castle uses the proposal without asking; the key is also usual
	store    string   // the key is needed only if the key secrets has this answer; empty: always
	borrowed bool     // only another cluster's value can be proposed
	needs    []string // keys that form and proposal depend on
	form     form     // nil for a computed value
	proposal func(*answers) string
	example  func(*answers) string // an answer that has the form; the key's own name if nil
}

// allKeys returns the keys of castle's own templates, in the order of the questions.
func allKeys() []*key {
	network := []string{"network"}
	machines := []string{"network", "gateway", "dns", "control_planes", "workers"}
	return []*key{
		{name: "cluster"}, {name: "platform"}, {name: "reference"},
		{name: "replicas", needs: []string{"control_planes", "workers"}},
		{name: "vm_ids", needs: []string{"vmid_start"}},
		{name: "nodes", needs: []string{"node_addresses"}},

		{name: "proxmox_endpoint", question: "Address of the Proxmox API",
			more: ", such as https://192.168.1.10:8006/", form: endpointForm,
			why: "castle creates the machines through it.", proposal: fromOthers("proxmox_endpoint"),
			example: always("https://192.168.1.10:8006/")},
		{name: "proxmox_node", question: "Name of the Proxmox node", more: ", as its web interface shows it",
			why:  "castle creates the machines on it.",
			form: hostForm, proposal: fromOthers("proxmox_node_name"), example: always("pve")},
		{name: "image_datastore", question: "Proxmox storage that takes Talos' image",
			more: " (content type import)", usual: true,
			why:  "Its content types must include import, for the disk image.",
			form: storageForm, proposal: always("local")},
		{name: "disk_datastore", question: "Proxmox storage of the machines' disks",
			why:   "Each machine gets its disks there; a worker has one more, for Longhorn.",
			usual: true, form: storageForm, proposal: always("local-lvm")},
		{name: "bridge", question: "Proxmox bridge of the machines", usual: true, form: bridgeForm,
			why: "The machines' network cards are attached to it.", proposal: always("vmbr0")},

		{name: "hcloud_location", question: "Location in Hetzner Cloud", form: locationForm,
			why: "fsn1, nbg1 or hel1; ash, hil or sin outside of Europe.", proposal: always("fsn1")},
		{name: "hcloud_server_type", question: "Server type of the machines", form: serverTypeForm,
			why:      "With at least 4 GB of memory. Those that begin with cax are arm.",
			proposal: always("cx33")},
		{name: "hcloud_network", question: "Private network of the machines, a /24", form: cloudNetworkForm,
			why:      "castle makes it. It must not be the one that your tunnel starts in.",
			proposal: proposeCloudNetwork},

		{name: "network", question: "Network of the machines", more: ", such as 192.168.1.0/24",
			why:  "Machines, the Kubernetes API and Services get their addresses in it.",
			form: networkForm, proposal: proposeNetwork, example: always("192.168.1.0/24")},
		{name: "gateway", question: "Gateway of that network", more: ", such as 192.168.1.1", borrowed: true,
			why:   "The machines reach everything outside of the network through it.",
			needs: network, form: address((*answers).checkUsable), proposal: proposeGateway,
			example: func(a *answers) string { return a.network().Addr().Next().String() }},
		{name: "dns", question: "Name server of the machines", quiet: true, needs: []string{"gateway"},
			form:     address(func(*answers, netip.Addr) error { return nil }),
			proposal: func(a *answers) string { return a.address("gateway").String() }},

		{name: "control_planes", question: "How many control planes", more: ", an odd number",
			why:  "An odd number: of 3, one may fail; a single one may not.",
			form: controlPlanesForm, proposal: always("3")},
		{name: "workers", question: "How many workers", form: workersForm, proposal: always("2"),
			why: "They run the workloads and Longhorn; with 0, the control planes do."},
		{name: "vip", question: "Virtual address of the Kubernetes API",
			more:  ", outside of the router's DHCP range; or the DNS name of a load balancer",
			why:   "Outside of the router's DHCP range. Or the name of a load balancer.",
			needs: machines, form: vipForm, proposal: proposeVIP},
		{name: "node_addresses", question: "Addresses of the machines",
			more:  ", FIRST-LAST or a list, outside of the router's DHCP range or reserved there",
			why:   "FIRST-LAST or a list, outside of the DHCP range or reserved there.",
			needs: append([]string{"vip"}, machines...), form: nodeAddressesForm, proposal: proposeNodes},
		{name: "install_disk", question: "Disk of the machines that Talos is installed on",
			more: ", such as /dev/nvme0n1: its content is lost", why: "The disk's content is lost.",
			form: diskForm, proposal: always("/dev/sda")},
		{name: "longhorn_disk", question: "Another disk of the workers, for Longhorn",
			why:   "The volumes are on it. The disk's content is lost.",
			needs: []string{"install_disk"}, form: longhornDiskForm, proposal: proposeLonghornDisk},
		{name: "cni", question: "Network plugin",
			more: ": flannel, or cilium instead of kube-proxy and MetalLB", quiet: true,
			form: cniForm, proposal: always("flannel")},
		{name: "pool_addresses", question: "Addresses that Services get",
			more:  ", FIRST-LAST, outside of the router's DHCP range",
			why:   "For Services of type LoadBalancer. Keep them out of the DHCP range.",
			needs: append([]string{"node_addresses"}, machines...), form: poolsForm, proposal: proposePool},
		{name: "vmid_start", question: "First of the cluster's VM ids",
			why:   "castle reserves ids from here on, with room for more machines.",
			needs: []string{"control_planes", "workers"}, form: vmidForm, proposal: proposeVMID},

		{name: "secrets", question: "Store of the cluster's secrets",
			more: ": infisical, vault, or local for a file secrets.tfvars",
			why:  "infisical needs a project, vault an address, local a file on this disk.",
			form: storeForm, proposal: always("infisical"), example: always("local")},
		{name: "infisical_host", store: "infisical", question: "Address of Infisical", usual: true,
			why:  "Infisical has a cloud in the EU and one in the US; or it is your own.",
			form: urlForm, proposal: always("https://eu.infisical.com")},
		{name: "infisical_project_id", store: "infisical", question: "Id of the Infisical project",
			more: ` (Project settings, "Copy project id")`,
			why:  `The project holds the secrets. Project settings, "Copy project id".`,
			form: projectForm, proposal: fromOthers("infisical_project_id"),
			example: always("8f3c1d52-6a0e-4b7f-9d21-5e4c7a90b6d3")},
		{name: "infisical_project_slug", store: "infisical", question: "Slug of the Infisical project",
			more: " (Project settings)", why: "External Secrets names the project by it. Project settings.",
			form: slugForm, proposal: fromOthers("infisical_project_slug"), example: always("castle")},
		{name: "infisical_environment", store: "infisical", usual: true,
			question: "Slug of the environment inside the project", form: slugForm, proposal: always("prod"),
			why: "A project has several environments; castle uses one."},

		{name: "vault_address", store: "vault", question: "Address of the Vault",
			more: ", such as https://vault.example.org:8200",
			why:  "castle reads the secrets there, with the token in VAULT_TOKEN.",
			form: urlForm, proposal: fromOthers("vault_address"),
			example: always("https://vault.example.org:8200")},

		{name: "git_url", question: "Git repository that Flux follows",
			more: ", such as https://github.com/me/cluster",
			why:  "Flux installs what is in it. Without credentials: they are secrets.",
			form: gitForm, example: always("https://github.com/me/cluster")},
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
			all = append(all, &key{name: name, question: "The template's own " + name, form: anyForm,
				why: "Files of the template mention ${" + name + "}."})
			return
		}
		for _, need := range all[i].needs {
			want(need)
		}
	}
	for _, p := range parts {
		for _, mention := range p.text.Variables() {
			want(mention.RootName())
		}
	}
	return slices.DeleteFunc(all, func(k *key) bool { return !wanted[k.name] || k.form == nil })
}

// Usage lists the keys for a help text.
func Usage() string {
	var b strings.Builder
	for _, k := range allKeys() {
		if k.form != nil {
			fmt.Fprintf(&b, "  %-22s  %s\n", k.name, k.question+k.more)
		}
	}
	return b.String()
}

func always(text string) func(*answers) string { return func(*answers) string { return text } }
