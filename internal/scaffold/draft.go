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
)

// secretsFile is readable by its owner only.
const secretsFile = "secrets.tfvars"

// Node is a machine of the cluster, for templates.
type Node struct {
	Name         string
	ControlPlane bool
	ID           int
	Address      netip.Addr
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
	path    string // of the cluster in Flux's repository
}

// Write renders the template into a draft. Every key must have been answered.
func (c *NewCluster) Write() (*Draft, error) {
	// Not in clusters/, where every folder is a cluster.
	temp, err := os.MkdirTemp(c.repository, ".new-")
	if err != nil {
		return nil, err
	}
	d := &Draft{Repository: temp, cluster: c}
	if err := d.write(c.data()); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

func (d *Draft) write(data map[string]any) error {
	c := d.cluster
	if err := d.linkRepository(); err != nil {
		return err
	}
	d.Next = fmt.Sprintf("Next:\n  castle rehearse %[1]s\n  castle doctor %[1]s\n  castle create %[1]s\n",
		data["reference"])
	for _, p := range c.parts {
		text, err := p.render(data)
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
		if c.skeleton != nil && p.name == "cluster.hcl" {
			text = append(text, c.skeleton.block()...)
		}
		name := filepath.Join("clusters", c.Name, c.Platform, p.name)
		file := filepath.Join(d.Repository, name)
		if err := writeFile(file, text); err != nil {
			return err
		}
		if filepath.Base(p.name) == secretsFile {
			if err := os.Chmod(file, 0o600); err != nil {
				return err
			}
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
	var err error
	d.GitOps = filepath.Join(d.Repository, "gitops")
	d.path, d.GitOpsFiles, err = c.skeleton.write(d.GitOps, gitPath, data)
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
		if err = c.skeleton.place(d.GitOps, d.path, d.GitOpsFiles); err != nil {
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
	for line := range strings.Lines(d.Next) {
		if strings.HasPrefix(line, "  ") {
			commands = append(commands, strings.TrimSpace(line))
		}
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
