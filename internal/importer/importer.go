// Package importer reads the configurations of other tools: of talhelper, TOPF and Terragrunt. It reads files
// alone. It starts no program that a file names, decrypts nothing and evaluates no variable of the
// environment. What it does not take over is a Gap with file, line and a way out, so that nothing of the old
// configuration is lost in silence. Package scaffold writes the cluster.
package importer

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/siderolabs/gen/xslices"
	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/scaffold"
	"github.com/ephemeral-castle/castle/internal/talos"
)

// Gap is a part of the old configuration that castle did not take over.
type Gap struct {
	File    string `json:"file"`
	Line    int    `json:"line"`
	Subject string `json:"subject"`
	Reason  string `json:"reason"`
	Fix     string `json:"fix"`
}

// Cluster is what castle took over of the configuration of one cluster.
type Cluster struct {
	Name     string
	Endpoint string            // the virtual address of the API, or a name
	Nodes    []scaffold.Node   // control planes first
	Answers  map[string]string // to questions of the template
	Settings []scaffold.Setting
	Gaps     []Gap
}

// The scopes of labels, patches and disks: all machines, those of a role, or the one with the name.
const (
	all          = ""
	controlPlane = "controlplane"
	worker       = "worker"
)

// place is a line of a file.
type place struct {
	file string
	line int
}

// draft collects what the files of a cluster hold.
type draft struct {
	folder     *folder
	file       string // the main one
	cluster    Cluster
	endpoint   string
	vip        string
	values     map[string]cty.Value
	disks      map[string]string
	extensions map[string][]string
	maps       map[string]map[string]cty.Value // by variable and scope, or registry
	patches    map[string][]string
	places     map[string]place // of machines
	renamed    bool             // a gap says that the names of nodes change
}

func newDraft(f *folder, file string) *draft {
	return &draft{folder: f, file: f.shown(file), cluster: Cluster{Answers: map[string]string{}},
		values: map[string]cty.Value{}, disks: map[string]string{}, extensions: map[string][]string{},
		maps: map[string]map[string]cty.Value{}, patches: map[string][]string{}, places: map[string]place{}}
}

func (d *draft) gap(at place, subject, reason, fix string) {
	d.cluster.Gaps = append(d.cluster.Gaps, Gap{at.file, max(at.line, 1), subject, reason, fix})
}

// set sets a variable, which has one value for the whole cluster.
func (d *draft) set(at place, name string, v cty.Value) {
	if old, is := d.values[name]; is && !old.RawEquals(v) {
		d.gap(at, name, "differs, and castle has one value for the cluster: the first",
			"set it in terraform.tfvars")
		return
	}
	d.values[name] = v
}

// add adds texts to a variable, such as labels to the machines of a scope.
func (d *draft) add(variable, scope string, entries map[string]string) {
	scopes := []string{scope}
	if scope == all {
		scopes = []string{controlPlane, worker}
	}
	for _, scope := range scopes {
		merged := map[string]cty.Value{}
		if old, is := d.maps[variable][scope]; is {
			merged = old.AsValueMap()
		}
		for key, value := range entries {
			merged[key] = cty.StringVal(value)
		}
		d.entry(variable, scope, cty.ObjectVal(merged))
	}
}

func (d *draft) entry(variable, key string, v cty.Value) {
	if d.maps[variable] == nil {
		d.maps[variable] = map[string]cty.Value{}
	}
	d.maps[variable][key] = v
}

// A template writes these texts between quotes.
var (
	nodeName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`)
	hostName = regexp.MustCompile(`^[A-Za-z0-9.:-]+$`)
	diskPath = regexp.MustCompile(`^/dev/[A-Za-z0-9/._:+-]+$`)
)

// machine takes over a machine by its host name and its addresses. Without one of them it is a gap.
func (d *draft) machine(at place, subject, host, addresses string, isControlPlane bool) (string, bool) {
	short, _, _ := strings.Cut(host, ".")
	name := strings.TrimPrefix(short, d.cluster.Name+"-")
	first, more, several := strings.Cut(addresses, ",")
	address, err := netip.ParseAddr(strings.TrimSpace(first))
	_, taken := d.places[name]
	switch fix := "add the machine to nodes in terraform.tfvars"; {
	case !nodeName.MatchString(name) || taken:
		d.gap(at, subject, fmt.Sprintf("has the name %q, which castle cannot use", host),
			fix+", with a name of lower-case letters, digits and hyphens")
		return "", false
	case err != nil || address.Zone() != "":
		d.gap(at, subject, fmt.Sprintf("has no address: %q", first), fix)
		return "", false
	case several:
		d.gap(at, subject, "has a further address: "+strings.TrimSpace(more),
			"set network.secondary_subnet in terraform.tfvars")
	}
	if short == name && !d.renamed {
		d.renamed = true
		d.gap(at, subject, "is called "+short+", and castle begins the names of nodes with the cluster's",
			"change what selects nodes by their names")
	}
	d.places[name] = at
	d.cluster.Nodes = append(d.cluster.Nodes, scaffold.Node{Name: name, ControlPlane: isControlPlane,
		Address: address})
	return name, true
}

// finish returns the cluster. An error says that there is none in the files.
func (d *draft) finish() (*Cluster, error) {
	c := &d.cluster
	if len(c.Nodes) == 0 {
		lines := ""
		for _, g := range c.Gaps {
			if strings.HasPrefix(g.Subject, "nodes") {
				lines += fmt.Sprintf("\n  %s:%d: %s: %s", g.File, g.Line, g.Subject, g.Reason)
			}
		}
		return nil, fmt.Errorf("%s names no machine that castle can take over%s", d.file, lines)
	}
	slices.SortStableFunc(c.Nodes, func(a, b scaffold.Node) int { return strings.Compare(role(a), role(b)) })
	for i := range c.Nodes {
		n := &c.Nodes[i]
		n.InstallDisk = cmp.Or(d.disks[n.Name], d.disks[role(*n)], d.disks[all])
		if !diskPath.MatchString(n.InstallDisk) {
			n.InstallDisk = ""
			d.gap(d.places[n.Name], n.Name, "names no disk by its path", "set its install_disk in "+
				"terraform.tfvars; `talosctl get disks --insecure --nodes "+n.Address.String()+"` lists them")
		}
	}
	d.schematics()
	d.api()
	d.collect()
	c.Gaps = sorted(c.Gaps)
	return c, nil
}

// schematics gives all machines their extensions, or each its own where they differ.
func (d *draft) schematics() {
	same := true
	of := map[string]cty.Value{}
	for _, n := range d.cluster.Nodes {
		own, is := d.extensions[n.Name]
		if !is {
			own = d.extensions[role(n)]
		}
		of[n.Name] = texts(own)
		same = same && of[n.Name].RawEquals(of[d.cluster.Nodes[0].Name])
	}
	for name, extensions := range of {
		switch {
		case extensions.LengthInt() == 0: // castle's own installer
		case same:
			d.values["talos_extensions"] = extensions
		default:
			d.entry("talos_machine_schematics", name,
				cty.ObjectVal(map[string]cty.Value{"extensions": extensions}))
		}
	}
}

// sorted orders gaps by file and line, each once.
func sorted(gaps []Gap) []Gap {
	slices.SortStableFunc(gaps, func(a, b Gap) int {
		return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line),
			strings.Compare(a.Subject, b.Subject))
	})
	return slices.Compact(gaps)
}

func role(n scaffold.Node) string {
	if n.ControlPlane {
		return controlPlane
	}
	return worker
}

// api finds the endpoint of the cluster: the VIP, or a load balancer.
func (d *draft) api() {
	u, err := url.Parse(d.endpoint)
	if err != nil || !hostName.MatchString(u.Hostname()) {
		d.gap(d.places["endpoint"], "endpoint", fmt.Sprintf("%q is no address of an API", d.endpoint),
			"set vip or api_endpoint in terraform.tfvars")
		u = &url.URL{Host: "api.invalid"}
	}
	if !hostName.MatchString(d.vip) {
		d.vip = ""
	}
	d.cluster.Endpoint = cmp.Or(d.vip, u.Hostname())
	if port, err := cty.ParseNumberVal(u.Port()); err == nil && u.Port() != "6443" {
		d.values["api_port"] = port
	}
	_, err = netip.ParseAddr(u.Hostname())
	if d.vip == "" && err == nil { // that of a load balancer, or of the only control plane
		d.values["vip"] = cty.NullVal(cty.String)
	}
	if d.vip != u.Hostname() && (d.vip != "" || err == nil) {
		d.values["api_endpoint"] = cty.StringVal(u.Hostname())
	}
}

// collect makes settings of the values, maps and patches.
func (d *draft) collect() {
	for variable, entries := range d.maps {
		d.values[variable] = cty.ObjectVal(entries)
	}
	own := map[string]cty.Value{}
	for scope, patches := range d.patches {
		switch scope {
		case all:
			d.values["talos_config_patches"] = texts(patches)
		case controlPlane, worker:
			d.values["talos_"+scope+"_config_patches"] = texts(patches)
		default:
			own[scope] = texts(patches)
		}
	}
	if len(own) > 0 {
		d.values["talos_machine_config_patches"] = cty.ObjectVal(own)
	}
	for _, name := range slices.Sorted(maps.Keys(d.values)) {
		d.cluster.Settings = append(d.cluster.Settings, scaffold.Setting{Name: name, Value: d.values[name]})
	}
}

// talosVersion sets the release of Talos, and the format of its configuration.
func (d *draft) talosVersion(at place, release string) {
	release = "v" + strings.TrimPrefix(release, "v")
	d.set(at, "talos_version", cty.StringVal(release))
	d.set(at, "talos_contract", cty.StringVal(talos.Minor(release)))
}

func (d *draft) kubernetesVersion(at place, release string) {
	d.set(at, "kubernetes_version", cty.StringVal(strings.TrimPrefix(release, "v")))
}

// variable returns a function that sets a text.
func (d *draft) variable(name string) func(place, string) {
	return func(at place, s string) { d.set(at, name, cty.StringVal(s)) }
}

func texts(list []string) cty.Value { return cty.TupleVal(xslices.Map(list, cty.StringVal)) }
