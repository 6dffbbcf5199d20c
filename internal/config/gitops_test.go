package config

import (
	"os"
	"path/filepath"
	"testing"
)

func TestTheCloneIsRelativeToTheFileThatNamesIt(t *testing.T) {
	for _, x := range []struct{ name, files, want string }{
		{"nobody says", "", ""},
		{"cluster.hcl", "-- clusters/blue/proxmox/terraform.tfvars --\n" +
			"-- clusters/blue/proxmox/cluster.hcl --\ngitops { repository = \"../../../fleet\" }\n" +
			"-- fleet/x --\n", "fleet"},
		{"castle.hcl, for all",
			"-- castle.hcl --\ngitops { repository = \"all/${cluster.name}\" }\n-- all/blue/x --\n",
			"all/blue"},
		{"the cluster wins",
			"-- castle.hcl --\ngitops { repository = \"all\" }\n" +
				"-- clusters/blue/proxmox/terraform.tfvars --\n" +
				"-- clusters/blue/proxmox/cluster.hcl --\ngitops { repository = \"own\" }\n" +
				"-- clusters/blue/proxmox/own/x --\n",
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
	c := loaded(t, "-- castle.hcl --\ngitops { repository = \"nowhere\" }\n", func(o *Options) {
		o.GitOps = root
	})
	if c.GitOps == nil || c.GitOps.Repository != root {
		t.Errorf("another folder was asked for, and read was %v", c.GitOps)
	}
}

func TestBadClones(t *testing.T) {
	const file = "clusters/blue/proxmox/cluster.hcl"
	const changes = "-- clusters/blue/proxmox/terraform.tfvars --\n-- " + file + " --\n"
	expect(t, changes+"gitops { repository = \"fleet\" }\n", []string{file +
		":1 | gitops: no repository there; | blue/proxmox/fleet is no folder | relative to this file"})
	expect(t, changes+"gitops { repository = [] }\n", []string{file + ":1 | Unsuitable value"})
	expect(t, changes+"gitops {\n}\n", []string{file + ":1 | Missing required argument"})
	expect(t, changes+"gitops {\n}\ngitops {\n}\n", []string{
		file + ":1 | Missing required argument", file + ":3 | second block gitops | " + file + ":1",
		file + ":3 | Missing required argument",
	})
}
