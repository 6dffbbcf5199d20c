package rehearsal

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/ephemeral-castle/castle/internal/emulator/talos"
	"github.com/ephemeral-castle/castle/lab/internal/network"
)

// patchName is the edit in the work directory.
const patchName = "edit.patch"

// tryEdit applies the edit to a copy of the configuration before anything starts. The lab then also has what
// only the edited configuration names.
func (p *plan) tryEdit(ctx context.Context, notice func(string)) error {
	patch, err := os.ReadFile(p.Options.Edit)
	if err != nil {
		return &UsageError{fmt.Errorf("--edit: %w", err)}
	}
	if err := os.WriteFile(p.path(patchName), patch, 0o600); err != nil {
		return err
	}
	edited := p.path("edited")
	if _, err := p.double(p.Repository, edited); err != nil {
		return err
	}
	if err := p.edit(ctx, edited); err != nil {
		return &UsageError{fmt.Errorf("--edit %s: %w; nothing was started", p.Options.Edit, err)}
	}
	s, err := inspect(edited, p.Options)
	if err != nil {
		notice("the configuration is invalid after --edit " + p.Options.Edit + "; nothing was started")
		return err
	}
	p.Survey.add(s)
	return nil
}

var (
	patched  = regexp.MustCompile(`(?m)^(?:---|\+\+\+) ([^/\s]+)/`)
	rejected = regexp.MustCompile(`(?m)^error: patch failed: (.+):(\d+)$`)
)

// edit applies the patch in a copy of the repository, with git: it knows the formats of git and of diff.
func (p *plan) edit(ctx context.Context, dir string) error {
	git, err := exec.LookPath("git")
	if err != nil {
		return errors.New("the program git, which applies a patch, is not on PATH")
	}
	content, err := os.ReadFile(p.path(patchName))
	if err != nil {
		return err
	}
	strip := "-p1" // a/clusters/…, as git has it
	if m := patched.FindSubmatch(content); m != nil {
		if _, err := os.Stat(filepath.Join(dir, string(m[1]))); err == nil {
			strip = "-p0"
		}
	}
	c := exec.CommandContext(ctx, git, "apply", "--whitespace=nowarn", strip, p.path(patchName))
	// Neither the user's settings nor a repository of Git around the folder matter.
	c.Dir, c.Env = dir, []string{"LC_ALL=C", "HOME=" + p.Work, "GIT_CONFIG_NOSYSTEM=1",
		"GIT_DIR=" + p.path("none")}
	var stderr bytes.Buffer
	c.Stderr = &stderr
	if err := c.Run(); err != nil {
		if m := rejected.FindSubmatch(stderr.Bytes()); m != nil {
			return fmt.Errorf("%s:%s: the patch does not apply: other lines are there", m[1], m[2])
		}
		text := strings.ReplaceAll(strings.TrimSpace(stderr.String()), "error: ", "")
		return fmt.Errorf("git apply: %s", cmp.Or(strings.ReplaceAll(text, "\n", "; "), err.Error()))
	}
	return nil
}

// editing is the step between a create and a rollout.
func (r *round) editing(ctx context.Context) error {
	shown, began := "edit "+r.plan.Options.Edit, time.Now()
	fmt.Fprintf(r.stderr, "\n==> %s\n", shown)
	if err := r.plan.edit(ctx, r.plan.Repository); err != nil {
		return err
	}
	r.report.Steps = append(r.report.Steps, reportStep{shown, 0, seconds(time.Since(began))})
	return nil
}

// add puts the facts of another version of the configuration beside those of s.
func (s *survey) add(o *survey) {
	s.Network = network.Names{
		Addresses: union(s.Network.Addresses, o.Network.Addresses, netip.Addr.String),
		Ranges:    union(s.Network.Ranges, o.Network.Ranges, netip.Prefix.String),
		Hosts:     union(s.Network.Hosts, o.Network.Hosts, itself),
		Endpoints: union(s.Network.Endpoints, o.Network.Endpoints, network.Endpoint.String),
	}
	s.Hosts.Nodes = union(s.Hosts.Nodes, o.Hosts.Nodes, itself)
	s.Hosts.Storages = union(s.Hosts.Storages, o.Hosts.Storages, itself)
	s.Hosts.Bridges = union(s.Hosts.Bridges, o.Hosts.Bridges, itself)
	s.Hosts.Devices = union(s.Hosts.Devices, o.Hosts.Devices, itself)
	s.Hosts.Sources = union(s.Hosts.Sources, o.Hosts.Sources, itself)
	s.Hosts.Templates = union(s.Hosts.Templates, o.Hosts.Templates, itself)
	reserved := map[string]netip.Addr{}
	maps.Copy(reserved, o.Hosts.Reserved)
	maps.Copy(reserved, s.Hosts.Reserved) // a card keeps its address
	s.Hosts.Reserved = reserved
	s.Hosts.Leases = union(s.Hosts.Leases, o.Hosts.Leases, netip.Addr.String)
	s.Hosts.Commands = union(s.Hosts.Commands, o.Hosts.Commands, itself)
	s.Machines = union(s.Machines, o.Machines, func(m talos.Machine) string { return m.Address })
	s.Nodes = union(s.Nodes, o.Nodes, itself)
	s.Secrets = union(s.Secrets, o.Secrets, itself)
	s.Branches = union(s.Branches, o.Branches, itself)
	s.Schematics = union(s.Schematics, o.Schematics, itself)
	s.Providers = union(s.Providers, o.Providers, itself)
	s.Certificates = union(s.Certificates, o.Certificates, itself)
	s.LocalSecrets = cmp.Or(s.LocalSecrets, o.LocalSecrets)
	s.ProxmoxToken = cmp.Or(s.ProxmoxToken, o.ProxmoxToken)
	s.Proxmox, s.Infisical = cmp.Or(s.Proxmox, o.Proxmox), cmp.Or(s.Infisical, o.Infisical)
	s.VaultAddress, s.Cloud = cmp.Or(s.VaultAddress, o.VaultAddress), cmp.Or(s.Cloud, o.Cloud)
	s.Vault, s.ObjectStore = cmp.Or(s.Vault, o.Vault), cmp.Or(s.ObjectStore, o.ObjectStore)
	s.modules = append(s.modules, o.modules...)
}

// join adds the cluster of --with. Kubernetes are told apart by the platform of their machines.
func (s *survey) join(repository string, o Options) error {
	o.Cluster = o.With
	other, err := inspect(repository, o)
	switch {
	case err != nil:
		return err
	case len(o.Command) == 0:
		return &UsageError{errors.New("--with requires a command, which creates both clusters")}
	case (s.Cloud == nil) == (other.Cloud == nil):
		return &UsageError{fmt.Errorf("--with %s: one of the two clusters has to be in Hetzner Cloud, and "+
			"one elsewhere", o.With)}
	}
	s.add(other)
	s.Both = true
	return nil
}

// union appends what is new by its name.
func union[T any](all, more []T, name func(T) string) []T {
	for _, m := range more {
		if !slices.ContainsFunc(all, func(x T) bool { return name(x) == name(m) }) {
			all = append(all, m)
		}
	}
	return all
}

func itself(s string) string { return s }
