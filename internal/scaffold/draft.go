package scaffold

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/zclconf/go-cty/cty"
)

// nextFile holds the next steps; it is printed and not copied.
const nextFile = "next.txt"

// readTemplate reads the template of a cluster.
func readTemplate(all fs.FS, name string) ([]part, error) {
	if name == gitopsTemplate {
		return nil, fmt.Errorf("template %q is for the repository that Flux reads: use castle new --gitops; "+
			"templates of clusters: %s", name, strings.Join(templateNames(all), ", "))
	}
	parts, err := readParts(all, name)
	if err != nil {
		return nil, err
	}
	return parts, checkParts(parts, nil)
}

// Templates returns the names of the templates of clusters: the embedded ones and those of a repository.
func Templates(repository string, embedded fs.FS) []string {
	return templateNames(layered(repository, embedded))
}

// templateNames returns the names of the templates of clusters.
func templateNames(all fs.FS) (names []string) {
	entries, _ := fs.ReadDir(all, ".") //nolint:errcheck // no folder, no templates
	for _, e := range entries {
		if e.IsDir() && e.Name() != gitopsTemplate {
			names = append(names, e.Name())
		}
	}
	return names
}

// Node is a machine of the cluster, for templates.
type Node struct {
	Name         string     `json:"name"`
	ControlPlane bool       `json:"control_plane"`
	ID           int        `json:"id"`
	Address      netip.Addr `json:"address"`
	InstallDisk  string     `json:"install_disk"` // empty: the answer install_disk
}

// Draft is a generated cluster that is not in its place yet. Repository is a view of the
// user's repository with the cluster in it, for checks; Close removes it.
type Draft struct {
	Repository string
	Files      []string // names in the user's repository
	Next       string   // the next steps

	GitOps      string   // the view of Flux's repository with the cluster in it; empty without --gitops
	GitOpsFiles []string // names in Flux's repository

	cluster *NewCluster
}

// Write renders the template into a draft. Every key must have been answered.
func (c *NewCluster) Write() (*Draft, error) {
	// Not in clusters/, where every folder is a cluster.
	temp, err := os.MkdirTemp(c.repository, ".new-")
	if err != nil {
		return nil, err
	}
	d := &Draft{Repository: temp, cluster: c}
	values, err := valuesOf(c.data())
	if err == nil {
		err = d.write(values)
	}
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

func (d *Draft) write(values map[string]cty.Value) error {
	c := d.cluster
	if err := d.linkRepository(); err != nil {
		return err
	}
	d.Next = fmt.Sprintf("Next:\n  castle rehearse %[1]s\n  castle doctor %[1]s\n  castle create %[1]s\n",
		c.reference())
	for _, p := range c.parts {
		text, err := p.render(values)
		if err != nil {
			return err
		}
		if p.name == nextFile {
			d.Next = string(text)
			continue
		}
		if len(bytes.TrimSpace(text)) == 0 { // not needed with these answers
			continue
		}
		if p.name == "terraform.tfvars" {
			if text, err = c.set(text); err != nil {
				return err
			}
		}
		if c.skeleton != nil && p.name == "cluster.hcl" {
			text = append(text, c.skeleton.block()...)
		}
		name := filepath.Join("clusters", c.Name, c.Platform, p.name)
		mode := os.FileMode(0o644)
		if filepath.Base(p.name) == "secrets.tfvars" {
			mode = 0o600 // readable by its owner only
		}
		if err := writeFile(filepath.Join(d.Repository, name), text, mode); err != nil {
			return err
		}
		d.Files = append(d.Files, name)
	}
	if c.skeleton == nil {
		return nil
	}
	gitPath, is := c.answers.values["git_path"].(string)
	if !is {
		return fmt.Errorf("--gitops: template %s has no git_path, so Flux would not find the files",
			c.Template)
	}
	d.GitOps = filepath.Join(d.Repository, "gitops")
	err := c.skeleton.write(d.GitOps, gitPath, values)
	d.GitOpsFiles = c.skeleton.files
	return err
}

// linkRepository links everything of the user's repository that a check reads.
func (d *Draft) linkRepository() error {
	from, err := filepath.Abs(d.cluster.repository)
	if err != nil {
		return err
	}
	own := filepath.Join("clusters", d.cluster.Name)
	for _, pattern := range []string{"castle.hcl", "stages", "templates", "clusters/*", own + "/*"} {
		names, err := fs.Glob(os.DirFS(from), pattern)
		if err != nil {
			return err
		}
		for _, name := range names {
			if name == own {
				continue
			}
			link := filepath.Join(d.Repository, name)
			if err := makeFolder(filepath.Dir(link)); err != nil {
				return err
			}
			if err := os.Symlink(filepath.Join(from, name), link); err != nil {
				return err
			}
		}
	}
	return nil
}

// Place moves the cluster and the files that Flux reads into place: all of them or none.
func (d *Draft) Place() error {
	c := d.cluster
	if err := checkVacant(c.repository, c.Name, c.Platform); err != nil {
		return err
	}
	moved := filepath.Join("clusters", c.Name)
	if _, err := os.Lstat(filepath.Join(c.repository, moved)); err == nil {
		moved = filepath.Join(moved, c.Platform)
	}
	from, to := filepath.Join(d.Repository, moved), filepath.Join(c.repository, moved)
	// Renaming fails if the folder has appeared in the meantime, unless it is empty.
	err := os.Rename(from, to)
	if err == nil && c.skeleton != nil {
		if err = c.skeleton.place(); err != nil {
			err = errors.Join(err, os.Rename(to, from))
		}
	}
	return err
}

// Close removes the files that Place has not moved.
func (d *Draft) Close() error { return os.RemoveAll(d.Repository) }

// Commands returns the commands in Next.
func (d *Draft) Commands() []string {
	commands := []string{}
	_, list, _ := strings.Cut(d.Next, "Next:\n")
	for line := range strings.Lines(list) {
		commands = append(commands, strings.TrimSpace(line))
	}
	return commands
}

// checkVacant refuses a cluster that exists.
func checkVacant(repository, cluster, platform string) error {
	folder := filepath.Join("clusters", cluster, platform)
	_, err := os.Lstat(filepath.Join(repository, folder))
	if err == nil {
		return fmt.Errorf("%s already exists; nothing was changed\n  choose another name, or "+
			"CLUSTER/PLATFORM, or move it away", folder)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
