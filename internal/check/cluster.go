package check

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/gitops"
	"github.com/ephemeral-castle/castle/internal/secret"
	"github.com/ephemeral-castle/castle/internal/tfeval"
)

// cluster is what the rules know of a cluster, as far as it is known before a run.
type cluster struct {
	config   *config.Cluster
	label    string // blue/proxmox
	masker   *secret.Masker
	stateDir string

	endpoint string // of Proxmox, as two clusters on one host write it alike; "" where it has none
	network  netip.Prefix
	gateway  netip.Addr
	vip      netip.Addr
	dns      []netip.Addr
	machines []machine // by name
	ids      span      // vm_id_range
	pools    []pool
	rendered []rendered

	objects    []tfeval.Object                 // see stageObjects
	outputs    map[string]map[string]cty.Value // of each layer, as far as stageObjects has foreseen them
	repository *gitops.Repository              // see flux
	problems   gitops.Problems
}

// machine is one of the variable nodes.
type machine struct {
	name, role string
	id         int // 0: it has none
	address    netip.Addr
	storage    bool // it has a disk for Longhorn
}

// span is a range of VM ids, both ends included; the zero span is none.
type span struct{ first, last int }

func (s span) String() string { return fmt.Sprintf("%d-%d", s.first, s.last) }

// pool is one entry of metallb_addresses.
type pool struct {
	text        string
	index       int
	first, last netip.Addr
}

func (p pool) holds(a netip.Addr) bool {
	return a.IsValid() && p.first.Compare(a) <= 0 && a.Compare(p.last) <= 0
}

func (p pool) overlaps(o pool) bool {
	return p.first.Compare(o.last) <= 0 && o.first.Compare(p.last) <= 0
}

func newCluster(c *config.Cluster) *cluster {
	x := &cluster{config: c, label: c.Name + "/" + c.Platform, masker: newMasker(c)}
	x.endpoint = strings.TrimRight(strings.ToLower(tfeval.Text(x.variable("proxmox_endpoint").Value)), "/")
	network := x.variable("network").Value
	x.gateway = address(tfeval.Attribute(network, "gateway"))
	if bits, ok := tfeval.Whole(tfeval.Attribute(network, "prefix")); ok && x.gateway.IsValid() {
		if p, err := x.gateway.Prefix(bits); err == nil {
			x.network = p
		}
	}
	for _, v := range tfeval.Elements(tfeval.Attribute(network, "dns")) {
		x.dns = append(x.dns, address(v))
	}
	x.vip = address(x.variable("vip").Value)
	x.machines = machines(x.variable("nodes").Value)
	ids := x.variable("vm_id_range").Value
	first, ok := tfeval.Whole(tfeval.Attribute(ids, "first"))
	last, too := tfeval.Whole(tfeval.Attribute(ids, "last"))
	if ok && too {
		x.ids = span{first, last}
	}
	for i, v := range tfeval.Elements(x.variable("metallb_addresses").Value) {
		if p, ok := readPool(tfeval.Text(v)); ok {
			p.index = i
			x.pools = append(x.pools, p)
		}
	}
	x.rendered = render(c)
	return x
}

// variable is the value of a variable, of the platform's stage where several
// have it. Rules know variables by the names that the contract of a layer gives them.
func (c *cluster) variable(name string) config.Written {
	var found *config.Stage
	for _, s := range c.config.Stages {
		if _, ok := s.Variables[name]; ok && (found == nil || s.Layer == "platform") {
			found = s
		}
	}
	if found == nil {
		return config.Written{Name: name, Value: cty.DynamicVal}
	}
	return found.Written(name)
}

// at is where a part of a variable is written.
func (c *cluster) at(variable string, steps ...string) hcl.Range {
	return c.variable(variable).At(steps...)
}

func machines(nodes cty.Value) []machine {
	if !nodes.IsKnown() || nodes.IsNull() || !nodes.CanIterateElements() || !(nodes.Type().IsMapType() || nodes.Type().IsObjectType()) {
		return nil
	}
	var all []machine
	for key, node := range nodes.AsValueMap() {
		m := machine{name: key, role: tfeval.Text(tfeval.Attribute(node, "role")), address: address(tfeval.Attribute(node, "address"))}
		m.id, _ = tfeval.Whole(tfeval.Attribute(node, "vm_id"))
		disk := tfeval.Attribute(node, "longhorn_disk")
		m.storage = disk.IsKnown() && !disk.IsNull()
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b machine) int { return strings.Compare(a.name, b.name) })
	return all
}

func readPool(entry string) (pool, bool) {
	if prefix, err := netip.ParsePrefix(entry); err == nil && prefix.Addr().Is4() {
		return pool{text: entry, first: prefix.Masked().Addr(), last: lastOf(prefix)}, true
	}
	from, to, _ := strings.Cut(entry, "-")
	first, err := netip.ParseAddr(from)
	last, otherErr := netip.ParseAddr(to)
	return pool{text: entry, first: first, last: last}, err == nil && otherErr == nil
}

// lastOf is the last address of an IPv4 network: its broadcast address.
func lastOf(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().As4()
	for bit := p.Bits(); bit < 32; bit++ {
		b[bit/8] |= 1 << (7 - bit%8)
	}
	return netip.AddrFrom4(b)
}

// where names a place for the detail of a finding elsewhere.
func where(at hcl.Range) string {
	if at.Start.Line == 0 || at.Empty() {
		return at.Filename
	}
	return at.Filename + ":" + strconv.Itoa(at.Start.Line)
}

func address(v cty.Value) netip.Addr {
	a, err := netip.ParseAddr(tfeval.Text(v))
	if err != nil || !a.Is4() {
		return netip.Addr{}
	}
	return a
}

// names returns the sorted keys of a map.
func names[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
