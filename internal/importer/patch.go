package importer

import (
	"fmt"
	"net/netip"
	"regexp"
	"strings"

	"github.com/zclconf/go-cty/cty"
	"go.yaml.in/yaml/v3"
)

const patchFix = "write it anew in talos_config_patches"

// patch takes over a patch of Talos' machine configuration: what castle has variables for becomes values.
func (d *draft) patch(at place, subject, scope, text string) {
	if reason, fix := unresolved(text); reason != "" {
		d.gap(at, subject, reason, fix+", as a patch in talos_config_patches")
		return
	}
	roots, err := documents([]byte(text))
	if err != nil {
		d.gap(at, subject, "is no YAML: "+err.Error(), patchFix)
	}
	for _, root := range roots {
		var v any
		err := root.Decode(&v)
		_, mapping := v.(map[string]any)
		key := secretIn("", v)
		switch {
		case err != nil:
			d.gap(at, subject, "is no YAML: "+err.Error(), patchFix)
		case child(root, "sops") != nil:
			d.gap(at, subject, "is encrypted by SOPS, and castle decrypts nothing", secretFix)
		case root.Kind == yaml.SequenceNode:
			d.gap(at, subject, "is an RFC 6902 patch, which Talos refuses for several documents",
				"write it as a strategic merge patch in talos_config_patches")
		case !mapping:
			d.gap(at, subject, "is no patch of a machine configuration", patchFix)
		case key != "":
			d.gap(at, subject, "holds a secret ("+key+"), which castle writes into no file for Git",
				secretFix)
		default:
			whole := marshal(root)
			d.document(at, subject, scope, root)
			rest := marshal(root)
			if rest == whole && len(roots) == 1 { // with its comments
				rest = strings.TrimRight(text, "\n") + "\n"
			}
			if len(root.Content) > 0 {
				d.patches[scope] = append(d.patches[scope], rest)
			}
		}
	}
}

// marshal writes a value, aliases in full.
func marshal(n *yaml.Node) string {
	var v any
	var b strings.Builder
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if n.Decode(&v) != nil || e.Encode(v) != nil {
		return ""
	}
	return b.String()
}

// document moves what castle has variables for out of one document of a patch.
func (d *draft) document(at place, subject, scope string, root *yaml.Node) {
	if kind := child(root, "kind"); kind != nil {
		if name := child(root, "name"); kind.Value == "Layer2VIPConfig" && name != nil {
			d.vip, root.Content = name.Value, nil
		} else if kind.Value == "HostnameConfig" {
			root.Content = nil // castle names the nodes
		}
		return
	}
	take := func(do func(*yaml.Node), keys ...string) {
		if n := child(root, keys...); n != nil {
			do(n)
			cut(root, keys...)
		}
	}
	take(func(n *yaml.Node) { d.disks[scope] = n.Value }, "machine", "install", "disk")
	take(func(n *yaml.Node) { d.installer(at, n.Value) }, "machine", "install", "image")
	take(func(*yaml.Node) {}, "machine", "network", "hostname")
	for key, variable := range map[string]string{"nodeLabels": "node_labels",
		"nodeAnnotations": "node_annotations", "nodeTaints": "node_taints"} {
		var entries map[string]string
		if n := child(root, "machine", key); n != nil && n.Decode(&entries) == nil {
			take(func(*yaml.Node) { d.add(variable, scope, entries) }, "machine", key)
		}
	}
	if scope == all {
		take(d.mirrors, "machine", "registries", "mirrors")
	}
	if scope == all || scope == controlPlane {
		take(func(n *yaml.Node) { d.scheduling(subject, n) }, "cluster", "allowSchedulingOnControlPlanes")
		take(func(n *yaml.Node) { d.lists("pod_subnets")(subject, n) }, "cluster", "network", "podSubnets")
		take(func(n *yaml.Node) { d.lists("service_subnets")(subject, n) }, "cluster", "network",
			"serviceSubnets")
		take(func(n *yaml.Node) { d.cni(subject, n) }, "cluster", "network", "cni")
	}
	for _, n := range items(child(root, "machine", "network", "interfaces")) {
		d.link(n)
	}
}

func (d *draft) scheduling(_ string, n *yaml.Node) {
	d.set(d.at(n), "allow_scheduling_on_controlplanes", cty.BoolVal(n.Value == "true"))
}

// factoryImage is an installer of an image factory: its host and the schematic.
var factoryImage = regexp.MustCompile(`^([^/]+)/(?:[a-z0-9]+-)?installer/([0-9a-f]{64})(?::.*)?$`)

// installer takes over an image of the image factory.
func (d *draft) installer(at place, name string) {
	m := factoryImage.FindStringSubmatch(name)
	if m == nil {
		d.gap(at, "install.image", fmt.Sprintf("%q is no installer of an image factory", name),
			"set talos_schematic_id or talos_extensions in terraform.tfvars")
		return
	}
	d.set(at, "talos_image_factory", cty.StringVal(m[1]))
	d.set(at, "talos_schematic_id", cty.StringVal(m[2]))
}

// cni takes over the network plugin.
func (d *draft) cni(subject string, n *yaml.Node) {
	if name := child(n, "name"); name != nil && name.Value != "flannel" {
		d.set(d.at(n), "cni", cty.StringVal("none"))
		d.gap(d.at(n), subject, "has the network plugin installed by something else than Talos",
			"repeat the import with --set cni=cilium, or add a stage of your own (docs/stages.md of castle)")
	}
}

// mirrors takes over machine.registries.mirrors.
func (d *draft) mirrors(n *yaml.Node) {
	var mirrors map[string]struct {
		Endpoints    []string `yaml:"endpoints"`
		OverridePath bool     `yaml:"overridePath"`
		SkipFallback bool     `yaml:"skipFallback"`
	}
	if err := n.Decode(&mirrors); err != nil {
		d.gap(d.at(n), "mirrors", "are unreadable: "+err.Error(), "set registry_mirrors in terraform.tfvars")
	}
	for registry, m := range mirrors {
		d.entry("registry_mirrors", registry, cty.ObjectVal(map[string]cty.Value{
			"endpoints": texts(m.Endpoints), "override_path": cty.BoolVal(m.OverridePath),
			"skip_fallback": cty.BoolVal(m.SkipFallback)}))
	}
}

// link finds the machines' network, their gateway and the VIP in an interface, which then lacks the VIP.
func (d *draft) link(n *yaml.Node) {
	if vip := child(n, "vip", "ip"); vip != nil {
		d.vip = vip.Value
		cut(n, "vip")
	}
	for _, address := range items(child(n, "addresses")) {
		network, err := netip.ParsePrefix(address.Value)
		for _, route := range items(child(n, "routes")) {
			to, via := child(route, "network"), child(route, "gateway")
			if err != nil || via == nil || to != nil && to.Value != "0.0.0.0/0" {
				continue
			}
			gateway, err := netip.ParseAddr(via.Value)
			if found := d.cluster.Answers; err == nil && network.Contains(gateway) && found["network"] == "" {
				found["network"], found["gateway"] = network.Masked().String(), gateway.String()
			}
		}
	}
}
