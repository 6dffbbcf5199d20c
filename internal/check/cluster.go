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

	made       []made                          // see makes
	outputs    map[string]map[string]cty.Value // of each layer, as far as makes has foreseen them
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
	x.endpoint = strings.TrimRight(strings.ToLower(text(x.variable("proxmox_endpoint").Value)), "/")
	network := x.variable("network").Value
	x.gateway = address(attribute(network, "gateway"))
	if bits, ok := whole(attribute(network, "prefix")); ok && x.gateway.IsValid() {
		if p, err := x.gateway.Prefix(bits); err == nil {
			x.network = p
		}
	}
	for _, v := range elements(attribute(network, "dns")) {
		x.dns = append(x.dns, address(v))
	}
	x.vip = address(x.variable("vip").Value)
	x.machines = machines(x.variable("nodes").Value)
	ids := x.variable("vm_id_range").Value
	first, ok := whole(attribute(ids, "first"))
	last, too := whole(attribute(ids, "last"))
	if ok && too {
		x.ids = span{first, last}
	}
	for i, v := range elements(x.variable("metallb_addresses").Value) {
		if p, ok := readPool(text(v)); ok {
			p.index = i
			x.pools = append(x.pools, p)
		}
	}
	x.rendered = x.render()
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
		m := machine{name: key, role: text(attribute(node, "role")), address: address(attribute(node, "address"))}
		m.id, _ = whole(attribute(node, "vm_id"))
		disk := attribute(node, "longhorn_disk")
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

// The values of cty as far as they are known, and nothing else.

func text(v cty.Value) string {
	if v == cty.NilVal || !v.IsKnown() || v.IsNull() || v.Type() != cty.String {
		return ""
	}
	return v.AsString()
}

func whole(v cty.Value) (int, bool) {
	if v == cty.NilVal || !v.IsKnown() || v.IsNull() || v.Type() != cty.Number || !v.AsBigFloat().IsInt() {
		return 0, false
	}
	n, _ := v.AsBigFloat().Int64()
	return int(n), true
}

func address(v cty.Value) netip.Addr {
	a, err := netip.ParseAddr(text(v))
	if err != nil || !a.Is4() {
		return netip.Addr{}
	}
	return a
}

func attribute(v cty.Value, name string) cty.Value {
	if v == cty.NilVal || !v.IsKnown() || v.IsNull() || !v.Type().IsObjectType() || !v.Type().HasAttribute(name) {
		return cty.DynamicVal
	}
	return v.GetAttr(name)
}

func elements(v cty.Value) []cty.Value {
	if v == cty.NilVal || !v.IsKnown() || v.IsNull() || !(v.Type().IsListType() || v.Type().IsTupleType() || v.Type().IsSetType()) {
		return nil
	}
	return v.AsValueSlice()
}

// names returns the sorted keys of a map.
func names[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
