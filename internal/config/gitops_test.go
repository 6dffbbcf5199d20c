package config

import (
	"os"
	"path/filepath"
	"testing"
)

func TestTheCloneIsRelativeToTheFileThatNamesIt(t *testing.T) {
	for _, x := range []struct{ name, files, want string }{
		{"nobody says", "", ""},
		{"cluster.hcl", "-- clusters/blue/proxmox/terraform.tfvars --\n-- clusters/blue/proxmox/cluster.hcl --\ngitops { repository = \"../../../fleet\" }\n-- fleet/x --\n", "fleet"},
		{"castle.hcl, for all", "-- castle.hcl --\ngitops { repository = \"all/${cluster.name}\" }\n-- all/blue/x --\n", "all/blue"},
		{"the cluster wins", "-- castle.hcl --\ngitops { repository = \"all\" }\n-- clusters/blue/proxmox/terraform.tfvars --\n-- clusters/blue/proxmox/cluster.hcl --\ngitops { repository = \"own\" }\n-- clusters/blue/proxmox/own/x --\n",
			"clusters/blue/proxmox/own"},
	} {
		t.Run(x.name, func(t *testing.T) {
			var root string
			c := loaded(t, x.files, func(o *Options) { root = o.Repository })
			got := ""
			if c.GitOps != nil {
				got, _ = filepath.Rel(root, c.GitOps.Repository)
			}
			if got != x.want {
				t.Errorf("read %q, want %q", got, x.want)
			}
		})
	}
}

// castle new checks a repository that consists of links into the user's own.
func TestTheCloneIsFoundThroughALink(t *testing.T) {
	root := ""
	loaded(t, "-- castle.hcl --\ngitops { repository = \"fleet\" }\n-- fleet/x --\n", func(o *Options) {
		root = filepath.Join(o.Repository, "fleet")
		draft := t.TempDir()
		for _, name := range []string{"castle.hcl", "clusters", "stages"} {
			if err := os.Symlink(filepath.Join(o.Repository, name), filepath.Join(draft, name)); err != nil {
				t.Fatal(err)
			}
		}
		o.Repository = draft
	})
	c := loaded(t, "-- castle.hcl --\ngitops { repository = \"nowhere\" }\n", func(o *Options) { o.GitOps = root })
	if c.GitOps == nil || c.GitOps.Repository != root {
		t.Errorf("another folder was asked for, and read was %v", c.GitOps)
	}
}

func TestBadClones(t *testing.T) {
	expect(t, "-- clusters/blue/proxmox/terraform.tfvars --\n-- clusters/blue/proxmox/cluster.hcl --\ngitops { repository = \"fleet\" }\n",
		[]string{"clusters/blue/proxmox/cluster.hcl:1 | gitops: no repository there; | blue/proxmox/fleet is no folder | relative to this file"})
	expect(t, "-- clusters/blue/proxmox/terraform.tfvars --\n-- clusters/blue/proxmox/cluster.hcl --\ngitops { repository = [] }\n", []string{"clusters/blue/proxmox/cluster.hcl:1 | unsuitable value"})
	expect(t, "-- clusters/blue/proxmox/terraform.tfvars --\n-- clusters/blue/proxmox/cluster.hcl --\ngitops {\n}\ngitops {\n}\n",
		[]string{"clusters/blue/proxmox/cluster.hcl:1 | Missing required argument", "clusters/blue/proxmox/cluster.hcl:3 | gitops: second block"})
}
