package rehearsal

import (
	"bytes"
	"cmp"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/emulator/talos"
	"github.com/ephemeral-castle/castle/internal/platform/proxmox"
	"github.com/ephemeral-castle/castle/internal/platform/proxmox/host"
	"github.com/ephemeral-castle/castle/internal/tfeval"
	"github.com/ephemeral-castle/castle/lab/charts"
	"github.com/ephemeral-castle/castle/lab/internal/datacenter"
	"github.com/ephemeral-castle/castle/lab/internal/network"
	"github.com/ephemeral-castle/castle/lab/internal/sources"
	"github.com/ephemeral-castle/castle/stages"
	"github.com/ephemeral-castle/castle/templates"
)

// survey holds the facts of a configuration about its environment.
type survey struct {
	Name, Platform string
	ClusterDir     string
	Network        network.Names
	Hosts          datacenter.Hosts
	Machines       []talos.Machine // that nobody makes: they are to be there
	Nodes          []string        // their full names
	Secrets        []string        // names of secrets that its modules ask Infisical or Vault for
	Branches       []string        // of the repository that Flux follows
	Tags           []string        // of the artifact that Flux follows, or ranges
	Digest         string          // of the artifact that Flux follows, where it is pinned
	Path           string          // in the repository or artifact: where Flux begins
	GitURL         string          // of the repository or artifact
	// Sources are folders of further repositories, by URL; Missing are those of which there is none.
	Sources      map[string]string
	Missing      []string
	SourceKind   string       // GitRepository or OCIRepository
	Keys         sources.Keys // of Flux's source, and of the tailnet
	TailnetTags  []string
	Schematics   []string // that somebody has posted to the image factory
	Repository   string   // the folder that Flux follows, if the cluster names one
	ProxmoxToken string   // where it is a plain value
	// what stands in for those of secrets.tfvars, where a stage takes them from there
	LocalSecrets string
	// Endpoints of the services that the environment names, for commands.
	Proxmox, Infisical, VaultAddress string
	APIEndpoint, VIP                 string // of Kubernetes

	Cloud *datacenter.Cloud // what the configuration expects of Hetzner Cloud; nil without
	Both  bool              // there is another cluster, and one of the two is in Hetzner Cloud
	Vault *datacenter.Vault // what the configuration expects of one; nil without
	// ObjectStore is the S3 bucket that the configuration expects; nil without
	ObjectStore  *datacenter.ObjectStore
	Providers    []string // source addresses
	Certificates []string // files with certificates of the real world's

	uses    []host.Use // what the machines use of their nodes
	modules []fs.FS
}

// inspect reads the configuration. An invalid one is a *cluster.ConfigError.
func inspect(repository string, o Options) (*survey, error) {
	// Without the user's secrets.tfvars, which is in no Git, the configuration is whole, too.
	environ := append(slices.Clone(o.Environ), localVariable+"={}")
	loaded, diags := config.Load(config.Options{
		Repository: repository, Cluster: o.Cluster, Environ: environ,
		Gates: cluster.GateTypes(), Preflights: cluster.PreflightTypes(), Exists: cluster.ExistsTypes(),
		Survivors: cluster.SurvivorTypes(),
		Library:   stages.Library, Templates: templates.Files,
	})
	if diags.HasErrors() {
		return nil, &cluster.ConfigError{Diagnostics: errorsOf(diags), Files: loaded.Files}
	}
	brought, err := parseSources(o.Sources)
	if err != nil {
		return nil, &UsageError{err}
	}
	hosts := slices.AppendSeq(charts.Hosts(), maps.Keys(brought))
	s := &survey{
		Sources: brought,
		Name:    loaded.Name, Platform: loaded.Platform, ClusterDir: loaded.Dir,
		Network: network.Find(append(loaded.Strings(), hosts...)), SourceKind: "GitRepository",
	}
	if loaded.GitOps != nil {
		s.Repository = loaded.GitOps.Repository
	}
	if s.Keys, err = keysFor(loaded.Strings(), s.Network.Endpoints); err != nil {
		return nil, err
	}
	for _, text := range loaded.Strings() {
		if filepath.IsAbs(text) && holdsCertificate(text) {
			s.Certificates = append(s.Certificates, text)
		}
	}
	var inputs []map[string]cty.Value
	sources, secrets := map[string]bool{}, map[string]bool{}
	for _, stage := range loaded.Stages {
		// Outputs of other stages are not known yet, and are not needed.
		values, _ := stage.Inputs(config.Scope{}) //nolint:errcheck // see above
		inputs = append(inputs, values)
		s.modules = append(s.modules, stage.Module)
		reads := false
		for _, source := range stage.Providers {
			sources[source] = true
			reads = reads || strings.HasSuffix(source, "/infisical") || strings.HasSuffix(source, "/vault")
		}
		if reads {
			names, err := secretNames(stage.Module)
			if err != nil {
				return nil, err
			}
			for _, n := range names {
				secrets[n] = true
			}
		}
	}
	outputs := tfeval.Outputs(loaded.Stages, nil)
	for _, stage := range loaded.Stages {
		if err := s.expect(stage, outputs); err != nil {
			return nil, err
		}
		if _, is := stage.Variables[localSecrets]; is {
			if s.LocalSecrets, s.ProxmoxToken, err = localStandIns(stage.Module, s.Keys); err != nil {
				return nil, err
			}
		}
	}
	s.Secrets, s.Providers = slices.Sorted(maps.Keys(secrets)), slices.Sorted(maps.Keys(sources))
	s.read(inputs)
	if err := s.bucket(loaded.Stages); err != nil {
		return nil, err
	}
	return s, s.landing(loaded.Stages, inputs)
}

// expect collects what a stage's preflights check: the hardware that its machines use, and the machines that
// it expects in maintenance mode.
func (s *survey) expect(stage *config.Stage, outputs map[string]map[string]cty.Value) error {
	for _, p := range stage.Preflights {
		//nolint:errcheck // the secrets are not known yet, and need not be
		values, _ := p.Values(stage, config.Scope{Outputs: outputs})
		if p.Type.Name == proxmox.PreflightVMIDs && values.Has("vm_ids") {
			uses, err := host.UsesOf(values)
			if err != nil {
				return err
			}
			s.uses = slices.AppendSeq(s.uses, maps.Values(uses))
			s.wire(tfeval.Read(stage, stage.KnownInputs(outputs, nil)).Local("cards"))
		}
		if p.Type.Name != cluster.PreflightMaintenance {
			continue
		}
		endpoints := map[string]string{}
		if err := values.Decode("endpoints", &endpoints); err != nil {
			return err
		}
		for _, name := range slices.Sorted(maps.Keys(endpoints)) {
			s.Machines = append(s.Machines,
				talos.Machine{Name: s.Name + "-" + name, Address: endpoints[name]})
		}
	}
	return nil
}

// wire has the machines' network where their first cards are: all on one bridge in one VLAN. Bridges of one
// name on two nodes may be in two; the lab does not tell these apart, and every card there is in the network.
func (s *survey) wire(cards cty.Value) {
	for _, all := range tfeval.Map(cards) {
		card := append(tfeval.Elements(all), cty.DynamicVal)[0]
		if s.Hosts.VLANs == nil {
			s.Hosts.VLANs = map[string]int{}
		}
		vlan, _ := tfeval.Whole(tfeval.Attribute(card, "vlan_id")) // 0 without one
		bridge := tfeval.Text(tfeval.Attribute(card, "bridge"))
		if other, known := s.Hosts.VLANs[bridge]; known && other != vlan {
			vlan = datacenter.AnyVLAN
		}
		s.Hosts.VLANs[bridge] = vlan
	}
}

// keysFor makes the keys for the servers that the configuration names.
func keysFor(texts []string, endpoints []network.Endpoint) (sources.Keys, error) {
	var ports []uint16
	for _, e := range endpoints {
		if e.SSH {
			ports = append(ports, e.Port)
		}
	}
	var registries []string
	for _, text := range texts {
		if path, is := strings.CutPrefix(text, "oci://"); is {
			registry, _, _ := strings.Cut(path, "/")
			registries = append(registries, registry)
		}
	}
	return sources.NewKeys(ports, registries)
}

func holdsCertificate(path string) bool {
	content, err := os.ReadFile(path)
	return err == nil && bytes.Contains(content, []byte("-----BEGIN CERTIFICATE-----"))
}

func errorsOf(diags hcl.Diagnostics) hcl.Diagnostics {
	return slices.DeleteFunc(diags, func(d *hcl.Diagnostic) bool { return d.Severity != hcl.DiagError })
}

// read reads the platform's variables by their names in the library. A stage with other names still
// has the addresses and hosts, which package network finds by form.
func (s *survey) read(inputs []map[string]cty.Value) {
	nodes, storages, machines := map[string]bool{}, map[string]bool{}, map[string]bool{}
	uses, release := proxmox.Footprint{}, ""
	for _, values := range inputs {
		for _, name := range machineNames(values["nodes"]) {
			machines[s.Name+"-"+name] = true
			s.reserve(values["nodes"], name)
		}
		s.pool(values)
		for name, v := range values {
			each(name, v, func(name, text string) {
				switch {
				case name == "hcloud_endpoint":
					s.cloud().Endpoint = text
				case name == "talos_version":
					release = text
				case name == "proxmox_endpoint":
					s.Proxmox = text
				case name == "api_endpoint":
					s.APIEndpoint = text
				case name == "vip":
					s.VIP = text
				case name == "infisical_host":
					s.Infisical = text
				case name == "vault_address":
					s.VaultAddress = text
				case name == "talos_schematic_id" || name == "id": // of talos_machine_schematics, too
					s.Schematics = append(s.Schematics, text)
				case name == "git_branch":
					s.Branches = append(s.Branches, text)
				case name == "git_path":
					s.Path = text
				case name == "git_url":
					if s.GitURL = text; strings.HasPrefix(text, "oci://") {
						s.SourceKind = "OCIRepository"
					}
				case name == "tailscale_tags":
					s.TailnetTags = append(s.TailnetTags, text)
				case name == "oci_tag" || name == "oci_semver":
					s.Tags = append(s.Tags, text)
				case name == "oci_digest":
					s.Digest = text
				case name == "proxmox_api_token":
					s.ProxmoxToken = text
				case name == "proxmox_node_name" || name == "node_name":
					nodes[text] = true
				case name == "proxmox_pool":
					uses.Pool = text
				case name == "bridge":
					s.Hosts.Bridges = append(s.Hosts.Bridges, text)
				case strings.HasSuffix(name, "datastore") || strings.HasSuffix(name, "datastore_id"):
					storages[text] = true
					switch name {
					case "proxmox_image_datastore":
						uses.Images = []string{text}
					case "proxmox_disk_datastore":
						uses.Disks = []string{text}
					}
				}
			})
		}
	}
	if s.Cloud != nil {
		s.Cloud.Talos = release
	}
	s.Hosts.Nodes, s.Hosts.Storages = slices.Sorted(maps.Keys(nodes)), slices.Sorted(maps.Keys(storages))
	uses.Bridges = s.Hosts.Bridges
	if len(s.uses) > 0 {
		uses.Disks, uses.Bridges = nil, nil
	}
	uses.Uses(s.uses)
	s.Hosts.Bridges, s.Hosts.Devices, s.Hosts.Sources = uses.Bridges, uses.Devices, uses.Sources
	s.Hosts.Templates = uses.Cloned
	uses.Nodes, s.Nodes = s.Hosts.Nodes, slices.Sorted(maps.Keys(machines))
	s.Hosts.Commands = limits(uses, s.ProxmoxToken)
}

func (s *survey) cloud() *datacenter.Cloud {
	if s.Cloud == nil {
		s.Cloud = &datacenter.Cloud{Token: localSecret(s.LocalSecrets, datacenter.CloudToken)}
		s.Network.Ranges = append(s.Network.Ranges, datacenter.CloudAddresses()...)
	}
	return s.Cloud
}

// limits returns the commands that limit the cluster's token to its pool, as docs/proxmox.md has them for an
// administrator. There are none for a cluster without a pool, and for a token of root.
func limits(uses proxmox.Footprint, token string) []string {
	id, _, _ := strings.Cut(cmp.Or(token, datacenter.ProxmoxTokenID), "=")
	user, _, _ := strings.Cut(id, "!")
	if uses.Pool == "" || user == "root@pam" {
		return nil
	}
	exists := func(command string) bool { return strings.HasPrefix(command, "pveum user ") }
	return append(slices.DeleteFunc(uses.Commands(id), exists),
		"pveum acl delete / --users "+user+" --roles Administrator")
}

// reserve has the DHCP server keep a machine's address for its card, as docs/proxmox.md tells the user to.
func (s *survey) reserve(nodes cty.Value, name string) {
	machine, _ := nodes.AsValueMap()[name].UnmarkDeep()
	text := func(attribute string) string {
		if !machine.Type().IsObjectType() || !machine.Type().HasAttribute(attribute) {
			return ""
		}
		v := machine.GetAttr(attribute)
		if v.IsNull() || !v.IsKnown() || v.Type() != cty.String {
			return ""
		}
		return v.AsString()
	}
	address, err := netip.ParseAddr(text("address"))
	if mac := text("mac_address"); err == nil && mac != "" {
		if s.Hosts.Reserved == nil {
			s.Hosts.Reserved = map[string]netip.Addr{}
		}
		s.Hosts.Reserved[strings.ToUpper(mac)] = address
	}
}

// spareLeases are those beside the machines' own, for machines that are made again or added.
const spareLeases = 6

// pool has the DHCP server give addresses of the machines' network to machines that have none: the highest
// ones that the configuration does not name.
func (s *survey) pool(values map[string]cty.Value) {
	gateway, err := netip.ParseAddr(tfeval.Text(tfeval.Attribute(values["network"], "gateway")))
	bits, _ := tfeval.Whole(tfeval.Attribute(values["network"], "prefix"))
	n, without := netip.PrefixFrom(gateway, bits).Masked(), 0
	for _, node := range tfeval.Map(values["nodes"]) {
		if a := tfeval.Attribute(node, "address"); a.IsKnown() && a.IsNull() {
			without++
		}
	}
	if err != nil || !gateway.Is4() || !n.IsValid() || without == 0 || len(s.Hosts.Leases) > 0 {
		return
	}
	taken := func(a netip.Addr) bool {
		within := func(r netip.Prefix) bool { return r != n && r.Contains(a) }
		return slices.Contains(s.Network.Addresses, a) || slices.ContainsFunc(s.Network.Ranges, within)
	}
	last := gateway
	for next := gateway; n.Contains(next); next = next.Next() {
		last = next
	}
	for a := last.Prev(); n.Contains(a) && len(s.Hosts.Leases) < without+spareLeases; a = a.Prev() {
		if !taken(a) {
			s.Hosts.Leases = append(s.Hosts.Leases, a)
		}
	}
	s.Network.Addresses = append(s.Network.Addresses, s.Hosts.Leases...)
}

// machineNames are the keys of the variable nodes.
func machineNames(v cty.Value) []string {
	if v == cty.NilVal {
		return nil
	}
	v, _ = v.UnmarkDeep()
	if v.IsNull() || !v.IsKnown() || !v.Type().IsObjectType() && !v.Type().IsMapType() {
		return nil
	}
	return slices.Collect(maps.Keys(v.AsValueMap()))
}

// each calls visit for every string in a value, with the name of the nearest attribute.
func each(name string, v cty.Value, visit func(name, text string)) {
	v, _ = v.UnmarkDeep()
	if v.IsNull() || !v.IsKnown() {
		return
	}
	if v.Type() == cty.String {
		visit(name, v.AsString())
		return
	}
	if !v.CanIterateElements() {
		return
	}
	attributes := v.Type().IsObjectType()
	for it := v.ElementIterator(); it.Next(); {
		key, element := it.Element()
		inner := name
		if attributes {
			inner = key.AsString()
		}
		each(inner, element, visit)
	}
}

// quoted finds words in capitals, such as "DATABASE_URL".
var quoted = regexp.MustCompile(`"([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)"`)

// secretNames are the words in a module that look like the names of secrets.
func secretNames(module fs.FS) ([]string, error) {
	var names []string
	err := fs.WalkDir(module, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || path.Ext(name) != ".tf" {
			return err
		}
		content, err := fs.ReadFile(module, name)
		for _, m := range quoted.FindAllSubmatch(content, -1) {
			// The cluster itself creates the secrets with this suffix.
			if n := string(m[1]); !strings.HasSuffix(n, "_CONTENT") {
				names = append(names, n)
			}
		}
		return err
	})
	return names, err
}

// apiNames are the name of the Kubernetes API, if it has one, and its address: the VIP's, or a load
// balancer's.
func (s *survey) apiNames() map[string]netip.Addr {
	if _, err := netip.ParseAddr(s.APIEndpoint); err == nil || s.APIEndpoint == "" {
		return nil
	}
	address, err := netip.ParseAddr(s.VIP)
	if err != nil {
		address = netip.MustParseAddr(balancerAddress)
	}
	return map[string]netip.Addr{s.APIEndpoint: address}
}
