package scaffold

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/ephemeral-castle/castle/internal/atomicfile"
)

// secretsFile is for its user's eyes only.
const secretsFile = "secrets.tfvars"

// Node is a machine of the cluster.
type Node struct {
	Name         string
	ControlPlane bool
	ID           int
	Address      netip.Addr
}

// Draft is a cluster that is written and not yet in its place. Repository is the
// user's with the cluster in it, to be looked at; Close removes it.
type Draft struct {
	Repository string
	Files      []string // in the user's repository, once it is placed
	Next       string   // what to do next

	GitOps      string   // Flux's repository with the cluster in it, likewise; empty: none was wanted
	GitOpsFiles []string // in the folder that was named

	order *Order
	path  string // of the cluster in Flux's repository
}

// Write renders the template into a draft. Every key must have been answered.
func (o *Order) Write() (d *Draft, err error) {
	// Beside clusters/ and not in it: every folder there is a cluster.
	half, err := os.MkdirTemp(o.repository, ".new-")
	if err != nil {
		return nil, err
	}
	d = &Draft{Repository: half, order: o}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.Close())
		}
	}()
	if err := d.mirror(); err != nil {
		return d, err
	}
	answers := o.data()
	d.Next = fmt.Sprintf("Next:\n  castle rehearse %[1]s\n  castle doctor %[1]s\n  castle create %[1]s\n", answers["reference"])
	for _, p := range o.parts {
		data, err := p.render(answers)
		if err != nil {
			return d, err
		}
		if p.name == nextFile {
			d.Next = string(data)
			continue
		}
		if len(bytes.TrimSpace(data)) == 0 { // these answers do without it
			continue
		}
		if o.skeleton != nil && p.name == "cluster.hcl" {
			data = append(data, o.skeleton.block()...)
		}
		name := path.Join("clusters", o.Cluster, o.Platform, p.name)
		file := filepath.Join(half, filepath.FromSlash(name))
		if err := makeFolder(filepath.Dir(file)); err != nil {
			return d, err
		}
		if err := atomicfile.Create(file, data, 0o644); err != nil {
			return d, err
		}
		if path.Base(p.name) == secretsFile {
			if err := os.Chmod(file, 0o600); err != nil {
				return d, err
			}
		}
		d.Files = append(d.Files, name)
	}
	return d, d.writeGitOps(answers)
}

// writeGitOps writes the skeleton of Flux's repository, if it is wanted.
func (d *Draft) writeGitOps(answers map[string]any) (err error) {
	s := d.order.skeleton
	if s == nil {
		return nil
	}
	gitPath, is := d.order.values["git_path"].(string)
	if !is {
		return fmt.Errorf("--gitops: template %s has no git_path, so Flux would not find what is written", d.order.Template)
	}
	if d.path, err = s.clusterPath(gitPath); err != nil {
		return err
	}
	d.GitOps = filepath.Join(d.Repository, "gitops")
	d.GitOpsFiles, err = s.view(d.GitOps, d.path, answers)
	return err
}

// mirror makes the draft's repository look like the user's, whatever a check looks at.
func (d *Draft) mirror() error {
	from, err := filepath.Abs(d.order.repository)
	if err != nil {
		return err
	}
	all := []string{"castle.hcl", "stages", "templates"}
	clusters, err := os.ReadDir(filepath.Join(from, "clusters"))
	if err != nil {
		return err
	}
	for _, e := range clusters {
		if e.Name() != d.order.Cluster {
			all = append(all, path.Join("clusters", e.Name()))
		}
	}
	platforms, err := os.ReadDir(filepath.Join(from, "clusters", d.order.Cluster))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range platforms {
		all = append(all, path.Join("clusters", d.order.Cluster, e.Name()))
	}
	for _, name := range all {
		target := filepath.Join(from, filepath.FromSlash(name))
		if _, err := os.Stat(target); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		link := filepath.Join(d.Repository, filepath.FromSlash(name))
		if err := makeFolder(filepath.Dir(link)); err != nil {
			return err
		}
		if err := os.Symlink(target, link); err != nil {
			return err
		}
	}
	return nil
}

// data is what the files of a template are rendered with.
func (o *Order) data() map[string]any {
	data := map[string]any{"cluster": o.Cluster, "platform": o.Platform, "reference": o.Cluster}
	if !o.alone {
		data["reference"] = o.Label()
	}
	for name, v := range o.values {
		data[name] = v
	}
	data["replicas"] = min(o.count("workers"), 3)
	if addresses, _ := o.values["node_addresses"].([]netip.Addr); len(addresses) > 0 {
		data["nodes"] = o.nodes(addresses)
	}
	if o.count("vmid_start") > 0 {
		data["vm_ids"] = o.ids()
	}
	return data
}

func (o *Order) nodes(addresses []netip.Addr) []Node {
	var nodes []Node
	for i, a := range addresses {
		n := Node{Name: fmt.Sprintf("cp-%02d", i+1), ControlPlane: true, ID: o.count("vmid_start") + i, Address: a}
		if w := i - o.count("control_planes"); w >= 0 {
			n.Name, n.ControlPlane = fmt.Sprintf("worker-%02d", w+1), false
		}
		nodes = append(nodes, n)
	}
	return nodes
}

// Place moves the cluster to its place, whole or not at all, and so what Flux reads.
func (d *Draft) Place() (err error) {
	o := d.order
	if err := vacant(o.repository, o.Cluster, o.Platform); err != nil {
		return err
	}
	if o.skeleton != nil {
		undo, failed := o.skeleton.place(d.GitOps, d.path, d.GitOpsFiles)
		if failed != nil {
			return failed
		}
		defer func() {
			if err != nil {
				err = errors.Join(err, undo())
			}
		}()
	}
	moved := path.Join("clusters", o.Cluster)
	if _, err := os.Lstat(filepath.Join(o.repository, moved)); err == nil {
		moved = path.Join(moved, o.Platform)
	}
	// Renaming onto a folder that has appeared meanwhile fails, unless that is empty.
	return os.Rename(filepath.Join(d.Repository, moved), filepath.Join(o.repository, moved))
}

// Close removes what Place has not moved.
func (d *Draft) Close() error { return os.RemoveAll(d.Repository) }

// Commands are the commands of Next.
func (d *Draft) Commands() []string {
	commands := []string{}
	for line := range strings.Lines(d.Next) {
		if strings.HasPrefix(line, "  ") {
			commands = append(commands, strings.TrimSpace(line))
		}
	}
	return commands
}

func vacant(repository, cluster, platform string) error {
	folder := path.Join("clusters", cluster, platform)
	switch _, err := os.Lstat(filepath.Join(repository, filepath.FromSlash(folder))); {
	case err == nil:
		return fmt.Errorf("%s is there already; nothing was changed\n  take another name, or CLUSTER/PLATFORM, or move it away", folder)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	return nil
}
