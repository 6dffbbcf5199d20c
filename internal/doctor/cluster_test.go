package doctor

import (
	"context"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/doctor/finding"
	"github.com/ephemeral-castle/castle/internal/emulator/proxmox"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/platform/proxmox/values"
)

func TestHealthyClusterIsGreen(t *testing.T) {
	report := newWorld(t, proxmox.Config{}).look(t)
	for _, f := range report.Findings {
		if f.Colour != finding.Green {
			t.Errorf("%+v", f)
		}
	}
	if !report.Healthy || report.Cluster != "mini" {
		t.Errorf("%+v", report)
	}
}

// Every check of Proxmox meets it, and one reports it, with its fix.
func TestAnUntrustedCertificateIsReportedOnce(t *testing.T) {
	w := newWorld(t, proxmox.Config{})
	w.vars["proxmox_endpoint"] = distrusted(t, w.hypervisor.Handler())
	report := w.look(t)
	expect(t, report.Findings, "proxmox.vm-ids", finding.Grey,
		"not checked: the certificate of Proxmox is not trusted, see above", "")
	for _, f := range report.Findings {
		if f.Name != "proxmox.api" && f.Colour != finding.Green && f.Colour != finding.Grey {
			t.Errorf("beside it: %+v", f)
		}
	}
}

// TestBrokenPrerequisiteIsReported breaks one thing at a time.
func TestBrokenPrerequisiteIsReported(t *testing.T) {
	for name, c := range map[string]struct {
		config    proxmox.Config
		breaks    func(*testing.T, *world)
		name      string
		colour    finding.Colour
		text, fix string
	}{
		"a secret is missing": {
			breaks: func(_ *testing.T, w *world) { w.vault.Remove(w.folder, "GITHUB_TOKEN") },
			name:   "infisical", colour: finding.Red, text: "lacks, or has empty: GITHUB_TOKEN.",
			fix: "in Infisical",
		},
		"a secret is empty": {
			breaks: func(_ *testing.T, w *world) { w.vault.SetSecret(w.folder, "ESO_CLIENT_ID", "") },
			name:   "infisical", colour: finding.Red, text: "lacks, or has empty: ESO_CLIENT_ID.",
			fix: "in Infisical",
		},
		"the folder is another one": {
			breaks: func(_ *testing.T, w *world) { w.vars["infisical_environment"] = "dev" },
			name:   "infisical", colour: finding.Red, text: "environment dev", fix: "correct the name",
		},
		"the identity is refused": {
			breaks: func(_ *testing.T, w *world) { w.environ[1] += "!" },
			name:   "infisical", colour: finding.Red, text: "Invalid credentials", fix: "EU and US clouds",
		},
		"there is no identity": {
			breaks: func(_ *testing.T, w *world) { w.environ = w.environ[2:] },
			name:   "infisical", colour: finding.Red, text: "not both set", fix: "machine identity",
		},
		"without the token Proxmox is not checked": {
			breaks: func(_ *testing.T, w *world) { w.environ = w.environ[2:] },
			name:   "proxmox", colour: finding.Grey, text: "not checked: the API token is not known: " +
				"INFISICAL_UNIVERSAL_AUTH_CLIENT_ID",
		},
		"the token is refused": {
			breaks: func(_ *testing.T, w *world) { w.hypervisor.SetToken(tokenID + "=another") },
			name:   "proxmox.api", colour: finding.Red, text: "refuses the API token", fix: "API Tokens",
		},
		"Proxmox does not answer": {
			breaks: func(_ *testing.T, w *world) { w.vars["proxmox_endpoint"] = "https://127.0.0.1:1" },
			name:   "proxmox.api", colour: finding.Red, text: "connection refused", fix: "proxmox_endpoint",
		},
		"the certificate is not trusted": {
			breaks: func(t *testing.T, w *world) {
				w.vars["proxmox_endpoint"] = distrusted(t,
					w.hypervisor.Handler())
			},
			name: "proxmox.api", colour: finding.Red, text: "its certificate is not trusted",
			fix: "copy the CA /etc/pve/pve-root-ca.pem from a node, and set proxmox_ca_file",
		},
		"any certificate is accepted": {
			breaks: func(_ *testing.T, w *world) { w.vars["proxmox_insecure"] = "true" },
			name:   "proxmox.api", colour: finding.Yellow, text: "accepts any certificate",
			fix: "proxmox_ca_file",
		},
		"a right is missing": {
			breaks: func(t *testing.T, w *world) {
				w.limit(t, "pveum role modify CastleMachines --privs Pool.Audit,VM.Allocate")
			},
			name: "proxmox.rights", colour: finding.Red, text: "lacks VM.Config.CPU, VM.Config.Cloudinit",
			fix: "privilege separation",
		},
		"the token may change every machine": {
			breaks: func(t *testing.T, w *world) {
				w.limit(t, "pveum role add All --privs VM.Allocate,VM.PowerMgmt,VM.Config.CPU",
					"pveum acl modify /vms --users castle@pve --roles All")
			},
			name: "proxmox.rights", colour: finding.Red,
			text: "the API token may change or delete machines " +
				"outside of the cluster's pool: VM.Allocate, VM.Config.*, VM.PowerMgmt on /vms",
			fix: "pveum acl modify /pool/mini --users castle@pve --tokens 'castle@pve!mini' " +
				"--roles CastleMachines",
		},
		"the token may change another pool": {
			breaks: func(t *testing.T, w *world) {
				w.hypervisor.AddVM(proxmox.VM{ID: 100, Pool: "prod"})
				w.limit(t, "pveum acl modify /pool/prod --users castle@pve --roles CastleMachines")
			},
			name: "proxmox.rights", colour: finding.Red,
			text: "VM.PowerMgmt on /pool/prod; VM.Allocate, VM.Config.*, VM.PowerMgmt on /vms/100",
		},
		"the token may delete all disks": {
			breaks: func(t *testing.T, w *world) {
				w.limit(t, "pveum acl modify /storage/local-lvm --users castle@pve --roles CastleImages")
			},
			name: "proxmox.rights", colour: finding.Red,
			text: "pool: Datastore.Allocate on /storage/local-lvm",
		},
		"the cluster has no pool": {
			breaks: func(t *testing.T, w *world) { w.vars["proxmox_pool"] = "" },
			name:   "proxmox.rights", colour: finding.Red, text: "VM.PowerMgmt on /pool/mini",
			fix: `set proxmox_pool = "mini", use a token`,
		},
		"the pool does not exist": {
			breaks: func(t *testing.T, w *world) { w.vars["proxmox_pool"] = "minni" },
			name:   "proxmox.pool", colour: finding.Red,
			text: "pool minni, where the machines belong, does not",
			fix:  "pveum pool add minni --comment castle",
		},
		"the token has other power": {
			breaks: func(t *testing.T, w *world) {
				w.limit(t, "pveum role add Power --privs Sys.PowerMgmt",
					"pveum acl modify / --users castle@pve --roles Power")
			},
			name: "proxmox.rights", colour: finding.Yellow, text: "on / Sys.PowerMgmt", fix: "create a user",
		},
		"the rights cannot be read": {
			breaks: func(_ *testing.T, w *world) {
				w.hypervisor.Fail(proxmox.Fault{Path: "access/permissions", Code: 500, Text: "no quorum"})
			},
			name: "proxmox.rights", colour: finding.Grey, text: "not checked: ",
		},
		"the token is root's": {
			breaks: func(_ *testing.T, w *world) {
				w.vault.SetSecret(w.folder, "PROXMOX_TOKEN_ID", "root@pam!castle")
				w.hypervisor.SetToken("root@pam!castle=" + tokenSecret)
			},
			name: "proxmox.rights", colour: finding.Red, text: "VM.Config.*, VM.PowerMgmt on /",
			fix: "pveum user add",
		},
		"the node is another one": {
			breaks: func(_ *testing.T, w *world) { w.vars["proxmox_node_name"] = "pve" },
			name:   "proxmox.nodes", colour: finding.Red, text: "no node pve, only proxmox",
			fix: "proxmox_node_name",
		},
		"the node is off": {
			breaks: func(_ *testing.T, w *world) { w.hypervisor.SetOffline("proxmox", true) },
			name:   "proxmox.nodes", colour: finding.Red, text: "node proxmox is offline", fix: "start it",
		},
		"a storage is missing": {
			breaks: func(_ *testing.T, w *world) { w.vars["proxmox_disk_datastore"] = "ceph" },
			name:   "proxmox.storages", colour: finding.Red,
			text: "storage ceph on node proxmox does not exist",
			fix:  "choose another",
		},
		"a storage may not hold images": {
			config: proxmox.Config{Storages: storages("iso", "images")},
			name:   "proxmox.storages", colour: finding.Red,
			text: "does not allow the content import, only iso",
			fix:  "pvesm set local --content iso,import",
		},
		"the image cannot be fetched": {
			breaks: func(_ *testing.T, w *world) {
				w.hypervisor.Fail(proxmox.Fault{Path: "nodes/*/query-url-metadata", Code: 500,
					Text: "invalid server response: '404 Not Found'"})
			},
			name: "proxmox.image", colour: finding.Red, text: "404 Not Found", fix: "version and schematic",
		},
		"the image factory does not know extensions yet": {
			breaks: func(_ *testing.T, w *world) {
				w.vars["talos_extensions"] = `["siderolabs/i915"]`
				w.hypervisor.Fail(proxmox.Fault{Path: "nodes/*/query-url-metadata", Code: 500,
					Text: "invalid server response: '404 Not Found'"})
			},
			name: "proxmox.image", colour: finding.Grey, text: "the image factory makes the schematic first",
		},
		"an id is taken": {
			breaks: func(_ *testing.T, w *world) {
				w.hypervisor.AddVM(proxmox.VM{ID: 441,
					Name: "prod-database"})
			},
			name: "proxmox.vm-ids", colour: finding.Red, text: `VM 441 "prod-database"`, fix: "remove it",
		},
		"a VM that may be the cluster's own is not in the state": {
			breaks: func(_ *testing.T, w *world) {
				w.hypervisor.AddVM(proxmox.VM{ID: 441, Name: "mini-cp-01", Tags: []string{"castle", "mini"}})
			},
			name: "proxmox.vm-ids", colour: finding.Red,
			text: "no uuid is known here that proves it castle's own",
			fix:  "the uuid derives from them",
		},
		"a machine of the state is stopped": {
			breaks: func(_ *testing.T, w *world) {
				w.target.Known = func(*config.Stage) ([]gate.Known, error) {
					return []gate.Known{{Address: `proxmox_virtual_environment_vm.node["cp-01"]`,
						Type: "proxmox_virtual_environment_vm",
						Attributes: map[string]any{"vm_id": 441, "name": "mini-cp-01",
							"node_name": "proxmox"}}}, nil
				}
				w.hypervisor.AddVM(proxmox.VM{ID: 441, Name: "mini-cp-01", Tags: []string{"castle", "mini"}})
			},
			name: "proxmox.machines", colour: finding.Yellow,
			text: "cp-01 (VM 441) is stopped on node proxmox", fix: "castle create mini starts it",
		},
		"a machine of the state waits for its restart": {
			breaks: func(_ *testing.T, w *world) {
				w.target.Known = func(*config.Stage) ([]gate.Known, error) {
					return []gate.Known{{Address: `proxmox_virtual_environment_vm.node["cp-01"]`,
						Type: "proxmox_virtual_environment_vm",
						Attributes: map[string]any{"vm_id": 441, "name": "mini-cp-01",
							"node_name": "proxmox"}}}, nil
				}
				w.hypervisor.AddVM(proxmox.VM{ID: 441, Name: "mini-cp-01", Tags: []string{"castle", "mini"},
					Running: true, Pending: map[string]string{"memory": "8192"}})
			},
			name: "proxmox.machines", colour: finding.Yellow,
			text: "cp-01 (VM 441) needs a restart: memory none → 8192",
			fix:  "castle rollout drains it, stops and",
		},
		"a client certificate expires soon": {
			breaks: func(_ *testing.T, w *world) {
				w.target.Exists = true
				w.target.Certificates = func(context.Context) []finding.Finding {
					return finding.Warning("castle credentials renew mini", "it expires soon")
				}
			},
			name: "certificates", colour: finding.Yellow, text: "it expires soon",
			fix: "castle credentials renew mini",
		},
		"no credential expires soon, of those that could be read": {
			breaks: func(_ *testing.T, w *world) {
				w.target.Exists = true
				w.target.Certificates = func(context.Context) []finding.Finding {
					return nil
				}
			},
			name: "certificates", colour: finding.Green, text: "none that castle can read expires",
		},
		"an own VM is not in the state": {
			breaks: func(_ *testing.T, w *world) {
				w.target.Key = "our key"
				w.hypervisor.AddVM(proxmox.VM{ID: 441, Name: "renamed", Config: map[string]string{
					"smbios1": "uuid=" + values.UUIDOf("our key", "mini-cp-01")}})
			},
			name: "proxmox.vm-ids", colour: finding.Red,
			text: "is the cluster's own, but no state here has it",
			fix:  "castle create mini/proxmox --adopt",
		},
		"a clock is off": {
			breaks: func(_ *testing.T, w *world) { w.skew = 90 * time.Second },
			name:   "proxmox.clock", colour: finding.Yellow, text: "behind Proxmox", fix: "NTP",
		},
		"a clock is wrong": {
			breaks: func(_ *testing.T, w *world) { w.skew = -time.Hour },
			name:   "infisical.clock", colour: finding.Red, text: "ahead of Infisical", fix: "NTP",
		},
		"the repository refuses the token": {
			breaks: func(_ *testing.T, w *world) {
				w.vault.SetSecret(w.folder, "GITHUB_TOKEN",
					"expired-token")
			},
			name: "git", colour: finding.Red, text: "401 Unauthorized", fix: "is valid",
		},
		"the repository is another one": {
			breaks: func(_ *testing.T, w *world) { w.vars["git_url"] += "-two" },
			name:   "git", colour: finding.Red, text: "404 Not Found", fix: "git_url",
		},
		"the repository's authority is not known": {
			breaks: func(t *testing.T, w *world) {
				w.vars["git_url"] = distrusted(t, http.HandlerFunc(w.git)) + "/me/cluster"
			},
			name: "git", colour: finding.Red, text: "certificate", fix: "git_url",
		},
		"the repository's authority is the user's own": {
			breaks: func(t *testing.T, w *world) {
				w.vars["git_url"] = distrusted(t, http.HandlerFunc(w.git)) + "/me/cluster"
				w.vars["sync_ca_certificate"] = certificateOf(t, w.vars["git_url"])
			},
			name: "git", colour: finding.Green, text: "is readable, and has the branch",
		},
		"Flux follows an artifact": {
			breaks: func(_ *testing.T, w *world) { w.vars["git_url"] = "oci://registry.lan/me/cluster" },
			name:   "git", colour: finding.Grey, text: "an artifact, which Flux alone reads",
		},
		"the repository has no such branch": {
			breaks: func(_ *testing.T, w *world) { w.refs = "refs/heads/master-2" },
			name:   "git", colour: finding.Red, text: "has no branch master", fix: "git_branch",
		},
		"the address is not a repository": {
			breaks: func(_ *testing.T, w *world) { w.vars["git_url"] = w.vars["infisical_host"] + "/me" },
			name:   "git", colour: finding.Red, text: "404 Not Found", fix: "git_url",
		},
		"without Infisical there is no token for Git": {
			breaks: func(_ *testing.T, w *world) { w.environ = w.environ[2:] },
			name:   "git", colour: finding.Grey, text: "not checked: the token for https://127.0.0.1",
		},
		"another host uses an address": {
			breaks: func(t *testing.T, _ *world) {
				l, err := net.Listen("tcp", "127.13.0.11:6443")
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { l.Close() })
			},
			name: "addresses", colour: finding.Red,
			text: "a host answers at 127.13.0.11 (node cp-01) on 6443",
			fix:  "another address",
		},
		"this cluster uses the address": {
			breaks: func(_ *testing.T, w *world) { w.target.Exists = true },
			name:   "addresses", colour: finding.Green, text: "used by this cluster, which exists",
		},
		"a name does not resolve": {
			breaks: func(_ *testing.T, w *world) {
				w.vars["metallb_chart_repository"] = "https://charts.invalid/x"
			},
			name: "names", colour: finding.Red, text: "charts.invalid does not resolve", fix: "DNS",
		},
		"a name for the machines does not resolve": {
			breaks: func(_ *testing.T, w *world) {
				w.vars["serviceaccount_issuer"] = "https://issuer.invalid"
			},
			name: "names", colour: finding.Yellow, text: "issuer.invalid does not resolve here",
			fix: "machines use it",
		},
		"no mirror has a provider": {
			breaks: func(_ *testing.T, w *world) { w.lacks = "bpg/proxmox" },
			name:   "providers", colour: finding.Red, text: "bpg/proxmox: no mirror",
			fix: "add it to the mirror",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, c.config)
			if c.breaks != nil {
				c.breaks(t, w)
			}
			report := w.look(t)
			if report.Healthy && c.colour == finding.Red {
				t.Error("nothing is red")
			}
			expect(t, report.Findings, c.name, c.colour, c.text, c.fix)
		})
	}
}
