package check

import (
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/foreign"
	"github.com/ephemeral-castle/castle/internal/naming"
	"github.com/ephemeral-castle/castle/internal/secret"
	"github.com/ephemeral-castle/castle/internal/syntax"
	"github.com/ephemeral-castle/castle/internal/tfeval"
)

// cluster holds the values of a cluster that are known before a run, for the rules.
type cluster struct {
	config   *config.Cluster
	options  config.Options
	label    string // blue/proxmox
	masker   *secret.Masker
	stateDir string
	declares map[string]*config.Stage // for each variable the stage whose value counts

	endpoint string // of Proxmox, as two clusters on one host write it alike; "" where it has none
	network  netip.Prefix
	second   netip.Prefix // secondary_subnet, of the other IP family
	gateway  AddressRange
	dns      []AddressRange
	host     AddressRange // of the Proxmox API, where its endpoint has an address instead of a name
	vip      AddressRange
	api      AddressRange   // of a load balancer before the Kubernetes API, where it has an address
	machines []machine      // by name
	ids      IDRange        // vm_id_range
	pools    []AddressRange // the entries of the variables of poolVariables
	rendered []rendered     // once the rules are applied
	// outputs are those that follow from the values, by layer.
	outputs func() map[string]map[string]cty.Value

	damaged bool            // config has found errors: what is not set may be what could not be read
	invalid map[string]bool // variables that fail a validation, once these are evaluated
}

// machine is one of the variable nodes.
type machine struct {
	name    string
	id      int // 0: it has none
	address AddressRange
	second  AddressRange // of the other IP family
	storage bool         // it has a disk for Longhorn
}

// poolVariables hold the addresses of Services, of MetalLB and of Cilium.
func poolVariables() []string { return []string{"metallb_addresses", "cilium_pool_addresses"} }

func newCluster(c *config.Cluster, o config.Options) *cluster {
	x := &cluster{config: c, options: o, label: c.Name + "/" + c.Platform, masker: &secret.Masker{},
		declares: map[string]*config.Stage{}, invalid: map[string]bool{}}
	x.outputs = sync.OnceValue(func() map[string]map[string]cty.Value {
		return tfeval.Outputs(c.Stages, nil)
	})
	for _, s := range c.Stages {
		for name := range s.Variables {
			if x.declares[name] == nil || s.Layer == "platform" {
				x.declares[name] = s
			}
		}
	}
	x.masker.Add(c.Secrets()...)
	x.endpoint = strings.TrimRight(strings.ToLower(x.text("proxmox_endpoint")), "/")
	if u, err := url.Parse(x.endpoint); err == nil {
		x.host = x.single("the Proxmox host", cty.StringVal(u.Hostname()), "proxmox_endpoint")
	}
	network := x.variable("network").Value
	x.gateway = x.single("the gateway", tfeval.Attribute(network, "gateway"), "network", "gateway")
	if bits, ok := tfeval.Whole(tfeval.Attribute(network, "prefix")); ok && x.gateway.First.IsValid() {
		x.network, _ = x.gateway.First.Prefix(bits) // a validation reports another prefix
	}
	// A private network of Hetzner Cloud has no gateway in the configuration.
	if subnet, err := netip.ParsePrefix(tfeval.Text(tfeval.Attribute(network, "subnet"))); err == nil {
		x.network, x.gateway.at = subnet, x.at("network")
	}
	// A validation reports one that is none.
	x.second, _ = netip.ParsePrefix(tfeval.Text(tfeval.Attribute(network, "secondary_subnet")))
	for _, v := range tfeval.Elements(tfeval.Attribute(network, "dns")) {
		x.dns = append(x.dns, x.single("a name server", v, "network", "dns"))
	}
	x.vip = x.single("the VIP", x.variable("vip").Value, "vip")
	x.api = x.single("the Kubernetes API", x.variable("api_endpoint").Value, "api_endpoint")
	nodes := tfeval.Map(x.variable("nodes").Value)
	for _, name := range names(nodes) {
		m := machine{name: name}
		m.address = x.single("node "+name, tfeval.Attribute(nodes[name], "address"), "nodes", name, "address")
		m.second = x.single("node "+name, tfeval.Attribute(nodes[name], "secondary_address"), "nodes", name,
			"secondary_address")
		m.id, _ = tfeval.Whole(tfeval.Attribute(nodes[name], "vm_id"))
		m.storage = x.hasStorage(nodes[name])
		x.machines = append(x.machines, m)
	}
	ids := x.variable("vm_id_range").Value
	x.ids.First, _ = tfeval.Whole(tfeval.Attribute(ids, "first"))
	x.ids.Last, _ = tfeval.Whole(tfeval.Attribute(ids, "last"))
	for _, variable := range poolVariables() {
		for i, v := range tfeval.Elements(x.variable(variable).Value) {
			if p, ok := readPool(tfeval.Text(v)); ok {
				p.at = x.at(variable, strconv.Itoa(i))
				x.pools = append(x.pools, p)
			}
		}
	}
	return x
}

// hasStorage reports whether a node has a disk for Longhorn: its own, or that of its role or of all machines.
func (c *cluster) hasStorage(node cty.Value) bool {
	defaults := c.variable("machine_defaults").Value
	role := tfeval.Text(tfeval.Attribute(node, "role"))
	return slices.ContainsFunc([]cty.Value{node, tfeval.Map(defaults)[role],
		tfeval.Map(defaults)["all"]}, func(given cty.Value) bool {
		disk := tfeval.Attribute(given, "longhorn_disk")
		return disk.IsKnown() && !disk.IsNull()
	})
}

// variable is the value of a variable, of the platform's stage where several have it.
// Rules know variables by the names that the library's stages give them.
func (c *cluster) variable(name string) config.Written {
	found := c.declares[name]
	if found == nil {
		return config.Written{Name: name, Value: cty.DynamicVal}
	}
	return found.Written(name)
}

// text is the value of a variable that is a string.
func (c *cluster) text(name string) string { return tfeval.Text(c.variable(name).Value) }

// at is where a part of a variable is written.
func (c *cluster) at(variable string, steps ...string) hcl.Range {
	return c.variable(variable).At(steps...)
}

// door is the load balancer or name of the Kubernetes API with its port; "" without one.
func (c *cluster) door() string {
	port, _ := tfeval.Whole(c.variable("api_port").Value)
	if c.text("api_endpoint") == "" {
		return ""
	}
	return net.JoinHostPort(c.text("api_endpoint"), strconv.Itoa(port))
}

// hostname is a machine's name in Kubernetes and Proxmox.
func (c *cluster) hostname(m machine) string { return c.config.Name + "-" + m.name }

// single is one address and where it is written; the zero range if v is none.
func (c *cluster) single(what string, v cty.Value, variable string, steps ...string) AddressRange {
	a, err := netip.ParseAddr(tfeval.Text(v))
	if err != nil {
		return AddressRange{}
	}
	return AddressRange{What: what, First: a, Last: a, at: c.at(variable, steps...)}
}

// readPool reads a network, or a range such as 192.168.1.200-192.168.1.220.
func readPool(entry string) (AddressRange, bool) {
	pool := AddressRange{What: "pool " + entry}
	if prefix, err := netip.ParsePrefix(entry); err == nil {
		pool.First, pool.Last = prefix.Masked().Addr(), broadcast(prefix)
		return pool, true
	}
	from, to, _ := strings.Cut(entry, "-")
	var err, otherErr error
	pool.First, err = netip.ParseAddr(from)
	pool.Last, otherErr = netip.ParseAddr(to)
	return pool, err == nil && otherErr == nil
}

// broadcast is the last address of a network, which in IPv4 is no host's.
func broadcast(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().AsSlice()
	for bit := p.Bits(); bit < len(b)*8; bit++ {
		b[bit/8] |= 1 << (7 - bit%8)
	}
	last, _ := netip.AddrFromSlice(b) // it has the length of an address
	return last
}

// names returns the sorted keys of a map.
func names[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// oneLine makes a sentence's part of a text of several lines.
func oneLine(s string) string { return strings.TrimSuffix(foreign.OneLine(s), ".") }

// strayFolders finds folders in clusters/ that look like a cluster and hold no cluster.hcl in its place.
func strayFolders(repository string, clusters []string) hcl.Diagnostics {
	var diags hcl.Diagnostics
	report := (&cluster{masker: &secret.Masker{}}).reporter(&diags)
	at := func(folder string) hcl.Range {
		return hcl.Range{Filename: folder, Start: hcl.InitialPos, End: hcl.InitialPos}
	}
	has := func(name string) bool {
		return slices.ContainsFunc(clusters, func(c string) bool { return c == name || path.Dir(c) == name })
	}
	tree := os.DirFS(filepath.Join(repository, "clusters"))
	outer, _ := fs.Glob(tree, "*") // the patterns are well-formed
	inner, _ := fs.Glob(tree, "*/*")
	for _, name := range slices.Concat(outer, inner) {
		entries, err := fs.ReadDir(tree, name)
		if err != nil || has(name) || strings.HasPrefix(path.Base(name), ".") {
			continue // it is no folder
		}
		file, platforms := "cluster.hcl", false
		var files []string
		for _, e := range entries {
			if platforms = platforms || e.IsDir(); !e.IsDir() {
				files = append(files, e.Name())
			}
		}
		near := syntax.Nearest(file, files)
		switch outside := path.Dir(name) == "."; {
		case !outside && slices.Contains(files, file): // config.Clusters leaves it out
			wrong := naming.Check("clusters/"+name, "rename the folder", strings.Split(name, "/")...)
			report("cluster-folder", hcl.Range{}, wrong.Error(), "")
			continue
		case outside && near == "" && platforms:
			continue // it is reported for the folders inside
		case outside:
			file = "<platform>/" + file
		case near == "" && len(entries) > 0 && has(path.Dir(name)):
			continue // something else beside a cluster
		}
		fix := "Write it, or remove the folder."
		if near != "" {
			fix = fmt.Sprintf("Rename clusters/%s/%s to clusters/%[1]s/%[3]s.", name, near, file)
		}
		report("cluster-folder", at("clusters/"+name), "no "+file, "castle reads no cluster here. %s", fix)
	}
	if len(clusters) == 0 && len(diags) == 0 {
		report("cluster-folder", at("clusters"), "no cluster", "Run castle new to write one.")
	}
	return diags
}
