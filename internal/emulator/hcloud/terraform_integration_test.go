//go:build integration

package hcloud_test

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"

	"github.com/ephemeral-castle/castle/internal/emulator/hcloud"
)

// module makes what a cluster needs, as castle's stages describe it.
const module = `
terraform {
  required_providers {
    hcloud = { source = "hetznercloud/hcloud", version = "1.68.0" }
  }
}

provider "hcloud" {
  poll_interval = "50ms"
  poll_function = "constant"
}

locals {
  labels  = { castle = "green" }
  servers = { cp-1 = "10.0.1.11", cp-2 = "10.0.1.12", wk-1 = "10.0.1.21" }
}

variable "type" { default = "cx23" }

data "hcloud_image" "talos" {
  with_selector     = "os=talos,version=v1.13.0"
  with_architecture = "x86"
}

resource "hcloud_network" "green" {
  name     = "green"
  ip_range = "10.0.0.0/16"
  labels   = local.labels
}

resource "hcloud_network_subnet" "machines" {
  network_id   = hcloud_network.green.id
  type         = "cloud"
  network_zone = "eu-central"
  ip_range     = "10.0.1.0/24"
}

resource "hcloud_placement_group" "controlplane" {
  name   = "green"
  type   = "spread"
  labels = local.labels
}

resource "hcloud_firewall" "green" {
  name   = "green"
  labels = local.labels

  rule {
    direction  = "in"
    protocol   = "tcp"
    port       = "6443"
    source_ips = ["0.0.0.0/0", "::/0"]
  }
}

resource "hcloud_primary_ip" "node" {
  for_each    = local.servers
  name        = each.key
  type        = "ipv4"
  location    = "fsn1"
  auto_delete = false
  labels      = local.labels
}

resource "hcloud_server" "node" {
  for_each           = local.servers
  name               = each.key
  server_type        = var.type
  image              = data.hcloud_image.talos.id
  location           = "fsn1"
  labels             = merge(local.labels, { role = substr(each.key, 0, 2) })
  firewall_ids       = [hcloud_firewall.green.id]
  placement_group_id = startswith(each.key, "cp") ? hcloud_placement_group.controlplane.id : null

  public_net {
    ipv4         = hcloud_primary_ip.node[each.key].id
    ipv6_enabled = false
  }
}

resource "hcloud_server_network" "node" {
  for_each  = local.servers
  server_id = hcloud_server.node[each.key].id
  subnet_id = hcloud_network_subnet.machines.id
  ip        = each.value
  alias_ips = []
}

resource "hcloud_load_balancer" "api" {
  name               = "green"
  load_balancer_type = "lb11"
  location           = "fsn1"
  labels             = local.labels
}

resource "hcloud_load_balancer_network" "api" {
  load_balancer_id = hcloud_load_balancer.api.id
  subnet_id        = hcloud_network_subnet.machines.id
}

resource "hcloud_load_balancer_service" "api" {
  for_each         = toset(["6443", "50000"])
  load_balancer_id = hcloud_load_balancer.api.id
  protocol         = "tcp"
  listen_port      = each.value
  destination_port = each.value
}

resource "hcloud_load_balancer_target" "controlplane" {
  type             = "label_selector"
  load_balancer_id = hcloud_load_balancer.api.id
  label_selector   = "castle=green,role=cp"
  use_private_ip   = true
  depends_on       = [hcloud_load_balancer_network.api, hcloud_server_network.node]
}
`

// root is a Terraform working directory with the real provider.
type root struct {
	*testing.T
	dir string
	env []string
}

func newRoot(t *testing.T, endpoint string) root {
	t.Helper()
	binary, err := filepath.Abs("../../../bin/terraform-provider-hcloud_v1.68.0")
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	mirror := filepath.Join(home, "mirror", "registry.terraform.io/hetznercloud/hcloud/1.68.0/linux_amd64")
	rc := filepath.Join(home, "terraformrc")
	for name, content := range map[string]string{
		rc: `provider_installation {
  filesystem_mirror { path = "` + filepath.Join(home, "mirror") + `" }
}`,
		filepath.Join(home, "root", "main.tf"): module,
		filepath.Join(mirror, "README"):        "",
	} {
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Link(binary, filepath.Join(mirror, filepath.Base(binary))); err != nil {
		if err := os.Symlink(binary, filepath.Join(mirror, filepath.Base(binary))); err != nil {
			t.Fatal(err)
		}
	}
	r := root{t, filepath.Join(home, "root"), []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home,
		"TF_CLI_CONFIG_FILE=" + rc, "CHECKPOINT_DISABLE=1", "TF_IN_AUTOMATION=1",
		"HCLOUD_ENDPOINT=" + endpoint, "HCLOUD_TOKEN=" + strings.Repeat("w", 64)}}
	r.must("init", "-input=false", "-no-color")
	return r
}

func (r root) run(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(r.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "terraform", args...)
	cmd.Dir, cmd.Env = r.dir, r.env
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (r root) must(args ...string) string {
	r.Helper()
	out, err := r.run(args...)
	if err != nil {
		r.Fatalf("terraform %v: %v\n%s", args, err, out)
	}
	return out
}

// changes returns the actions of a plan that are not no-ops, by address.
func (r root) changes(more ...string) map[string]string {
	r.Helper()
	r.must(append([]string{"plan", "-input=false", "-no-color", "-out=plan"}, more...)...)
	var plan struct {
		Changes []struct {
			Address string
			Change  struct{ Actions []string }
		} `json:"resource_changes"`
	}
	if err := json.Unmarshal([]byte(r.must("show", "-json", "plan")), &plan); err != nil {
		r.Fatal(err)
	}
	changes := map[string]string{}
	for _, c := range plan.Changes {
		if what := strings.Join(c.Change.Actions, ","); what != "no-op" {
			changes[c.Address] = what
		}
	}
	return changes
}

// The real provider creates, refreshes, changes and destroys a cluster's resources, also while actions take
// time, a server is locked, and requests are limited.
func TestTheRealProviderMakesACluster(t *testing.T) {
	s := hcloud.New(hcloud.Config{Token: strings.Repeat("w", 64), Duration: 20 * time.Millisecond,
		Durations: map[string]time.Duration{"start_server": 200 * time.Millisecond}})
	defer s.Close()
	s.AddImage(schema.Image{Labels: map[string]string{"os": "talos", "version": "v1.13.0"}})
	server := httptest.NewServer(s)
	defer server.Close()
	r := newRoot(t, server.URL+"/v1")

	s.Fail(hcloud.Fault{Path: "servers/*/actions/attach_to_network", Times: 1, Status: 423, Code: "locked",
		Message: "server is locked"})
	s.Fail(hcloud.Fault{Method: "POST", Path: "load_balancers", Times: 1, Status: 429,
		Code:    "rate_limit_exceeded",
		Message: "limit reached"})
	r.must("apply", "-auto-approve", "-input=false", "-no-color")
	if left := r.changes(); len(left) != 0 {
		t.Errorf("the second plan changes %v", left)
	}
	for _, v := range s.Servers() {
		if v.Status != "running" || v.Locked || len(v.PrivateNet) != 1 || v.PublicNet.IPv4.IP == "" ||
			v.PublicNet.IPv6.IP != "" || len(v.PublicNet.Firewalls) != 1 {
			t.Errorf("server %+v", v)
		}
	}
	b := s.LoadBalancers()
	if len(b) != 1 || len(b[0].Services) != 2 || len(b[0].Targets) != 1 || len(b[0].Targets[0].Targets) != 2 {
		t.Errorf("load balancers %+v", b)
	}

	if changes := r.changes("-var", "type=cx33"); len(changes) != 3 ||
		changes[`hcloud_server.node["cp-1"]`] != "update" {
		t.Errorf("another type changes %v", changes)
	}
	r.must("apply", "-auto-approve", "-input=false", "-no-color", "-var", "type=cx33")
	off := func(v schema.Server) bool { return v.ServerType.Name != "cx33" || v.Status != "off" }
	if v := s.Servers(); slices.ContainsFunc(v, off) {
		t.Errorf("after the change of their type: %+v", v)
	}

	r.must("destroy", "-auto-approve", "-input=false", "-no-color")
	if left := len(s.Servers()) + len(s.Networks()) + len(s.LoadBalancers()) + len(s.Firewalls()) +
		len(s.PrimaryIPs()) + len(s.PlacementGroups()); left != 0 || len(s.Images()) != 1 {
		t.Errorf("%d resources and %d images are left", left, len(s.Images()))
	}
}

// A server whose creation fails after the request is in the state, tainted: the next apply replaces it.
func TestTheRealProviderTaintsAServerThatDoesNotStart(t *testing.T) {
	s := hcloud.New(hcloud.Config{Token: strings.Repeat("w", 64)})
	defer s.Close()
	s.AddImage(schema.Image{Labels: map[string]string{"os": "talos", "version": "v1.13.0"}})
	server := httptest.NewServer(s)
	defer server.Close()
	r := newRoot(t, server.URL+"/v1")

	s.Fail(hcloud.Fault{Method: "POST", Path: "servers", Times: 1, Action: "server_error"})
	if out, err := r.run("apply", "-auto-approve", "-input=false", "-no-color"); err == nil ||
		!strings.Contains(out, "server_error") {
		t.Fatalf("%v\n%s", err, out)
	}
	replaced := func(actions string) bool { return actions == "delete,create" }
	changes := r.changes()
	if n := len(slices.DeleteFunc(values(changes), func(a string) bool { return !replaced(a) })); n != 1 {
		t.Errorf("the next plan replaces %d resources: %v", n, changes)
	}
	r.must("apply", "-auto-approve", "-input=false", "-no-color")
	if left := r.changes(); len(left) != 0 {
		t.Errorf("then a plan changes %v", left)
	}
}

func values(m map[string]string) (all []string) {
	for _, v := range m {
		all = append(all, v)
	}
	return all
}
