package importer

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Topf reads a directory of TOPF. The format of topf.yaml: github.com/postfinance/topf, pkg/config.
func Topf(dir string) (*Cluster, error) {
	f, err := openFolder(dir)
	if err != nil {
		return nil, err
	}
	defer f.root.Close() //nolint:errcheck // it was only read
	root, err := f.configuration("topf.yaml")
	if err != nil {
		return nil, err
	}
	d, patches := newDraft(f, "topf.yaml"), "."
	d.fields("", root, map[string]field{
		"clusterName":       d.string(func(_ place, s string) { d.cluster.Name = s }),
		"clusterEndpoint":   d.string(func(at place, s string) { d.endpoint, d.places["endpoint"] = s, at }),
		"kubernetesVersion": d.string(d.kubernetesVersion),
		"talosVersion":      d.string(d.talosVersion),
		"schematicId": d.string(func(at place, s string) {
			if !schematicID.MatchString(s) {
				d.gap(at, "schematicId", "is made of a file", "set talos_extensions in terraform.tfvars")
				return
			}
			d.variable("talos_schematic_id")(at, s)
		}),
		"factory":    d.string(d.variable("talos_image_factory")),
		"platform":   d.string(d.variable("talos_platform")),
		"secureboot": d.refuse(secureBoot, secureBootFix),
		"secretsProvider": d.refuse("names a program, and castle starts none: it makes Talos' secrets itself",
			ownSecretsFix),
		"nodesProvider": d.refuse("names a program that lists machines, and castle starts none",
			"add its machines to nodes in terraform.tfvars"),
		"secretsPath": d.refuse(ownSecrets, ownSecretsFix),
		"patchesDir":  d.string(func(_ place, s string) { patches = path.Clean(s) }),
		"nodes":       nil, "data": nil, // read later; of templates, each of which is a gap
	})
	d.secretsFile("secrets.yaml")
	folders := []string{"all", all, "control-plane", controlPlane, "worker", worker}
	for i, n := range items(child(root, "nodes")) {
		if host, name, is := d.topfNode(fmt.Sprintf("nodes[%d]", i), n); is {
			folders = append(folders, path.Join("node", host), name)
		}
	}
	for i := 0; i < len(folders); i += 2 {
		err = errors.Join(err, d.topfPatches(path.Join(patches, folders[i]), folders[i+1]))
	}
	if err != nil {
		return nil, err
	}
	return d.finish()
}

var schematicID = regexp.MustCompile(`^[0-9a-f]{64}$`)

// topfNode takes over a machine, and returns its host name in TOPF and its name in castle.
func (d *draft) topfNode(subject string, n *yaml.Node) (host, name string, is bool) {
	var address, role string
	one := d.refuse("is for one machine, and castle has one for all", "set it in terraform.tfvars")
	d.fields(subject, n, map[string]field{
		"host":         d.string(func(_ place, s string) { host = s }),
		"ip":           d.string(func(_ place, s string) { address = s }),
		"role":         d.string(func(_ place, s string) { role = s }),
		"talosVersion": one, "schematicId": one, "factory": one, "platform": one, "secureboot": one,
		"data": nil,
	})
	if role != "control-plane" && role != "worker" {
		d.gap(d.at(n), subject, fmt.Sprintf("has the role %q, neither control-plane nor worker", role),
			"add the machine to nodes in terraform.tfvars")
		return "", "", false
	}
	name, is = d.machine(d.at(n), subject, host, address, role == "control-plane")
	return host, name, is
}

// patchFile is the name of a file that TOPF reads as a patch.
var patchFile = regexp.MustCompile(`\.ya?ml(\.tpl)?$`)

// topfPatches takes over the patches below a folder, in the order of their names.
func (d *draft) topfPatches(folder, scope string) error {
	err := fs.WalkDir(d.folder.root.FS(), folder, func(name string, e fs.DirEntry, err error) error {
		at := place{d.folder.shown(name), 1}
		switch {
		case err != nil:
			return err
		case e.IsDir() || !patchFile.MatchString(name):
		case !e.Type().IsRegular():
			d.gap(at, "patch", "is a link", "import a copy with the file in its place")
		case strings.HasSuffix(name, ".tpl"):
			d.gap(at, "patch", "is a Go template, and castle renders none",
				"write what `topf render` makes of it as a patch in talos_config_patches")
		default:
			text, err := d.folder.root.ReadFile(name)
			d.patch(at, path.Base(name), scope, string(text))
			return err
		}
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrInvalid) { // not there, or outside
		return nil
	}
	return err
}
