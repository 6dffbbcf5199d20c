package importer

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

const (
	ownSecrets    = "are not read: castle makes those of the cluster"
	ownSecretsFix = "reset the machines of a running cluster before castle creates it anew: it has other keys"
)

// Talhelper reads talhelper's talconfig.yaml. The format: github.com/budimanjojo/talhelper, pkg/config.
func Talhelper(name string) (*Cluster, error) {
	f, err := openFolder(filepath.Dir(name))
	if err != nil {
		return nil, err
	}
	defer f.root.Close() //nolint:errcheck // it was only read
	root, err := f.configuration(filepath.Base(name))
	if err != nil {
		return nil, err
	}
	d := newDraft(f, filepath.Base(name))
	d.fields("", root, d.talconfig())
	for i, n := range items(child(root, "nodes")) {
		d.talhelperNode(fmt.Sprintf("nodes[%d]", i), n)
	}
	d.secretsFile("talsecret.sops.yaml", "talsecret.yaml")
	return d.finish()
}

// secretsFile makes a gap of a file with Talos' secrets.
func (d *draft) secretsFile(names ...string) {
	for _, name := range names {
		if _, err := d.folder.root.Lstat(name); err == nil {
			d.gap(place{d.folder.shown(name), 1}, "Talos' secrets", ownSecrets, ownSecretsFix)
		}
	}
}

// talconfig are the fields of a talconfig.yaml.
func (d *draft) talconfig() map[string]field {
	group := func(scope string) field {
		return func(subject string, n *yaml.Node) { d.fields(subject, n, d.nodeConfigs(scope)) }
	}
	return map[string]field{
		"clusterName":       d.string(func(_ place, s string) { d.cluster.Name = s }),
		"talosVersion":      d.string(d.talosVersion),
		"kubernetesVersion": d.string(d.kubernetesVersion),
		"endpoint": d.string(func(at place, s string) {
			d.endpoint, d.places["endpoint"] = s, at
		}),
		"domain":                         d.under(all, "cluster", "network", "dnsDomain"),
		"allowSchedulingOnMasters":       d.scheduling,
		"allowSchedulingOnControlPlanes": d.scheduling,
		"additionalMachineCertSans":      d.under(all, "machine", "certSANs"),
		"additionalApiServerCertSans":    d.under(controlPlane, "cluster", "apiServer", "certSANs"),
		"inlineManifests":                d.each(controlPlane, "cluster", "inlineManifests"),
		"clusterPodNets":                 d.lists("pod_subnets"),
		"clusterSvcNets":                 d.lists("service_subnets"),
		"cniConfig":                      d.cni,
		"patches":                        d.talhelperPatches(all),
		"imageFactory": func(subject string, n *yaml.Node) {
			d.fields(subject, n, map[string]field{"registryURL": d.string(d.variable("talos_image_factory"))})
		},
		"nodes":        nil, // read later, when the cluster has its name
		"controlPlane": group(controlPlane),
		"worker":       group(worker),
	}
}

// nodeConfigs are the fields that a machine and a group have.
func (d *draft) nodeConfigs(scope string) map[string]field {
	words := func(variable string) field {
		return func(subject string, n *yaml.Node) {
			pairs(n, func(key, value *yaml.Node) {
				if v, is := d.text(subject+"."+key.Value, value); is {
					d.add(variable, scope, map[string]string{key.Value: v})
				}
			})
		}
	}
	return map[string]field{
		"nodeLabels":          words("node_labels"),
		"nodeAnnotations":     words("node_annotations"),
		"nodeTaints":          words("node_taints"),
		"machineDisks":        d.each(scope, "machine", "disks"),
		"machineFiles":        d.each(scope, "machine", "files"),
		"disableSearchDomain": d.under(scope, "machine", "network", "disableSearchDomain"),
		"kernelModules":       d.under(scope, "machine", "kernel", "modules"),
		"nameservers":         d.under(scope, "machine", "network", "nameservers"),
		"networkInterfaces":   d.each(scope, "machine", "network", "interfaces"),
		"extraManifests":      d.under(scope, "cluster", "extraManifests"),
		"certSANs":            d.under(scope, "machine", "certSANs"),
		"patches":             d.talhelperPatches(scope),
		"talosImageURL":       d.string(d.installer),
		"schematic":           func(subject string, n *yaml.Node) { d.schematic(subject, scope, n) },
		"machineSpec": func(subject string, n *yaml.Node) {
			d.fields(subject, n, map[string]field{
				"mode":       d.string(d.variable("talos_platform")),
				"secureboot": d.refuse(secureBoot, secureBootFix),
				"arch":       nil, "useUKI": nil, "bootMethod": nil, "imageSuffix": nil, // of the boot image
			})
		},
		"ingressFirewall": func(subject string, n *yaml.Node) {
			if action := child(n, "defaultAction"); action != nil {
				d.derived(subject, scope, document("NetworkDefaultActionConfig", mapping("ingress", action)))
			}
			d.documents(scope, "NetworkRuleConfig")(subject+".rules", child(n, "rules"))
		},
		"extensionServices":   d.documents(scope, "ExtensionServiceConfig"),
		"volumes":             d.documents(scope, "VolumeConfig"),
		"userVolumes":         d.documents(scope, "UserVolumeConfig"),
		"noSchematicValidate": nil, "imageSchematic": nil, "filenameTmpl": nil, // of talhelper's own work
	}
}

const (
	secureBoot    = "boots with Secure Boot, for which castle names no installer"
	secureBootFix = "set machine.install.image in talos_config_patches"
)

func (d *draft) talhelperNode(subject string, n *yaml.Node) {
	var host, address string
	var isControlPlane bool
	identity := map[string]field{
		"hostname":     d.string(func(_ place, s string) { host = s }),
		"ipAddress":    d.string(func(_ place, s string) { address = s }),
		"controlPlane": func(_ string, n *yaml.Node) { isControlPlane = n.Value == "true" },
	}
	pairs(n, func(key, value *yaml.Node) {
		if take := identity[key.Value]; take != nil {
			take(subject+"."+key.Value, value)
		}
	})
	name, is := d.machine(d.at(n), subject, host, address, isControlPlane)
	if !is {
		return
	}
	known := d.nodeConfigs(name)
	known["hostname"], known["ipAddress"], known["controlPlane"] = nil, nil, nil
	known["installDisk"] = d.string(func(_ place, s string) { d.disks[name] = s })
	known["installDiskSelector"] = func(subject string, n *yaml.Node) {
		d.gap(d.at(n), subject, "selects a disk by its traits, and castle names disks by their paths",
			"set install_disk of "+name+" in terraform.tfvars; a path of /dev/disk/by-id is stable")
	}
	known["ignoreHostname"] = d.refuse("leaves the name to the machine, and castle names the nodes",
		"change what selects the node by its name")
	for _, what := range []string{"Patches", "ExtraManifests", "MachineCertSANs"} {
		known["override"+what] = d.refuse("replaces what the group has, and castle applies both",
			"remove what the machine must not have from the patches in terraform.tfvars")
	}
	d.fields(subject, n, known)
}

// talhelperPatches takes over texts, and files with @ before their names.
func (d *draft) talhelperPatches(scope string) field {
	return func(subject string, n *yaml.Node) {
		for i, e := range items(n) {
			subject, at, text := fmt.Sprintf("%s[%d]", subject, i), d.at(e), e.Value
			if name, isFile := strings.CutPrefix(text, "@"); isFile {
				content, err := d.folder.root.ReadFile(filepath.Clean(name))
				if err != nil {
					d.gap(at, subject, "names a file that castle cannot read below "+d.folder.name+": "+name,
						"copy its content into talos_config_patches")
					continue
				}
				at, text = place{d.folder.shown(name), 1}, string(content)
			}
			d.patch(at, subject, scope, text)
		}
	}
}

// schematic takes over the extensions; castle makes no schematic of anything else.
func (d *draft) schematic(subject, scope string, n *yaml.Node) {
	path := []string{"customization", "systemExtensions", "officialExtensions"}
	d.extensions[scope] = d.list(subject, child(n, path...))
	slices.Sort(d.extensions[scope])
	if cut(n, path...); len(n.Content) > 0 {
		d.gap(d.at(n), subject, "customizes more than the official extensions", "make the schematic at the "+
			"image factory, and set talos_schematic_id instead of talos_extensions in terraform.tfvars")
	}
}

// fileIn is a value that talhelper reads from a file.
var fileIn = regexp.MustCompile(`(?m):\s*["']?@`)

// derived makes a patch of a value.
func (d *draft) derived(subject, scope string, n *yaml.Node) {
	text := marshal(n)
	if fileIn.MatchString(text) {
		d.gap(d.at(n), subject, "reads a file", "write its content as a patch in talos_config_patches")
		return
	}
	d.patch(d.at(n), subject, scope, text)
}

// under returns a field that becomes a patch, at its keys in Talos' machine configuration.
func (d *draft) under(scope string, keys ...string) field {
	return func(subject string, n *yaml.Node) {
		for _, key := range slices.Backward(keys) {
			n = mapping(key, n)
		}
		d.derived(subject, scope, n)
	}
}

// each is under with a patch for each entry of a list: one with a secret keeps no other one out.
func (d *draft) each(scope string, keys ...string) field {
	return func(subject string, n *yaml.Node) {
		for i, e := range items(n) {
			one := &yaml.Node{Kind: yaml.SequenceNode, Line: e.Line, Content: []*yaml.Node{e}}
			d.under(scope, keys...)(fmt.Sprintf("%s[%d]", subject, i), one)
		}
	}
}

// documents returns a field that becomes a document for each entry of a list.
func (d *draft) documents(scope, kind string) field {
	return func(subject string, n *yaml.Node) {
		for i, e := range items(n) {
			d.derived(fmt.Sprintf("%s[%d]", subject, i), scope, document(kind, e))
		}
	}
}

func document(kind string, n *yaml.Node) *yaml.Node {
	head := mapping("apiVersion", scalar("v1alpha1", n.Line))
	head.Content = slices.Concat(head.Content, mapping("kind", scalar(kind, n.Line)).Content, n.Content)
	return head
}

func scalar(text string, line int) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Value: text, Line: line}
}

func mapping(key string, value *yaml.Node) *yaml.Node {
	return &yaml.Node{Kind: yaml.MappingNode, Line: value.Line,
		Content: []*yaml.Node{scalar(key, value.Line), value}}
}
