package importer

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2/hclwrite"
)

// written writes files below a new folder, and returns it.
func written(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// settings are the values of a cluster as HCL on one line each.
func settings(c *Cluster) map[string]string {
	all := map[string]string{}
	for _, s := range c.Settings {
		all[s.Name] = strings.Join(strings.Fields(string(hclwrite.TokensForValue(s.Value).Bytes())), " ")
	}
	return all
}

// expect compares the values of a cluster that a test is about, and its gaps: pieces of their lines.
func expect(t *testing.T, c *Cluster, values map[string]string, gaps ...string) {
	t.Helper()
	got := settings(c)
	for name, want := range values {
		if want = strings.Join(strings.Fields(want), " "); got[name] != want {
			t.Errorf("%s = %s, want %s", name, got[name], want)
		}
	}
	var lines []string
	for _, g := range c.Gaps {
		lines = append(lines, filepath.Base(g.File)+":"+g.Subject+": "+g.Reason)
		if g.Line < 1 || g.Fix == "" {
			t.Errorf("without a line or a way out: %+v", g)
		}
	}
	for _, want := range gaps {
		if !strings.Contains(strings.Join(lines, "\n"), want) {
			t.Errorf("no gap %q in\n%s", want, strings.Join(lines, "\n"))
		}
	}
	if len(gaps) > 0 && len(lines) != len(gaps) {
		t.Errorf("%d gaps, want %d:\n%s", len(lines), len(gaps), strings.Join(lines, "\n"))
	}
}

const talconfig = `
clusterName: green
talosVersion: v1.13.1
kubernetesVersion: v1.36.2
endpoint: https://10.1.0.5:6443
clusterPodNets: [10.5.0.0/16]
nodes:
  - hostname: green-a
    ipAddress: 10.1.0.11
    controlPlane: true
    installDisk: /dev/nvme0n1
    networkInterfaces:
      - interface: eth0
        addresses: [10.1.0.11/24]
        routes: [{ network: 0.0.0.0/0, gateway: 10.1.0.1 }]
        vip: { ip: 10.1.0.5 }
`

func TestTalhelperBecomesValues(t *testing.T) {
	dir := written(t, map[string]string{"talconfig.yaml": talconfig + `
  - hostname: green-b
    ipAddress: 10.1.0.12, fd00::12
    installDisk: /dev/sda
    nodeLabels: { zone: a }
    nodeTaints: { gpu: "present:NoSchedule" }
    nameservers: [10.1.0.1]
    patches:
      - |-
        machine:
          sysctls: { vm.max_map_count: "262144" } # for search
patches:
  - |-
    machine:
      install: { disk: /dev/sdz }
      registries: { mirrors: { docker.io: { endpoints: [https://cache.lan], overridePath: true } } }
worker:
  nodeLabels: { tier: batch }
  schematic: { customization: { systemExtensions: { officialExtensions: [siderolabs/iscsi-tools] } } }
controlPlane:
  schematic: { customization: { systemExtensions: { officialExtensions: [siderolabs/iscsi-tools] } } }
cniConfig: { name: flannel }
`})
	c, err := Talhelper(filepath.Join(dir, "talconfig.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if c.Name != "green" || c.Endpoint != "10.1.0.5" || len(c.Nodes) != 2 ||
		c.Answers["network"] != "10.1.0.0/24" || c.Answers["gateway"] != "10.1.0.1" {
		t.Errorf("%+v", c)
	}
	if a, b := c.Nodes[0], c.Nodes[1]; a.Name != "a" || !a.ControlPlane || a.InstallDisk != "/dev/nvme0n1" ||
		b.Name != "b" || b.ControlPlane || b.Address.String() != "10.1.0.12" || b.InstallDisk != "/dev/sda" {
		t.Errorf("%+v", c.Nodes)
	}
	expect(t, c, map[string]string{
		"talos_version":        `"v1.13.1"`,
		"talos_contract":       `"v1.13"`,
		"kubernetes_version":   `"1.36.2"`,
		"pod_subnets":          `["10.5.0.0/16"]`,
		"talos_extensions":     `["siderolabs/iscsi-tools"]`,
		"node_labels":          `{ b = { zone = "a" } worker = { tier = "batch" } }`,
		"node_taints":          `{ b = { gpu = "present:NoSchedule" } }`,
		"talos_config_patches": "",
		"registry_mirrors": `{ "docker.io" = { endpoints = ["https://cache.lan"] override_path = true ` +
			`skip_fallback = false } }`,
		"talos_machine_config_patches": `{ a = ["machine:\n network:\n interfaces:\n - addresses:\n ` +
			`- 10.1.0.11/24\n interface: eth0\n routes:\n - gateway: 10.1.0.1\n network: 0.0.0.0/0\n"] ` +
			`b = ["machine:\n network:\n nameservers:\n - 10.1.0.1\n", ` +
			`"machine:\n sysctls: { vm.max_map_count: \"262144\" } # for search\n"] }`,
	}, "talconfig.yaml:nodes[1]: has a further address: fd00::12")
}

func TestMachinesKeepTheirOwnExtensions(t *testing.T) {
	dir := written(t, map[string]string{"talconfig.yaml": `
clusterName: green
endpoint: https://10.1.0.5:6443
nodes:
  - { hostname: a, ipAddress: 10.1.0.11, controlPlane: true, installDisk: /dev/sda }
  - { hostname: b, ipAddress: 10.1.0.12, installDisk: /dev/sda }
worker:
  schematic: { customization: { systemExtensions: { officialExtensions: [siderolabs/iscsi-tools] } } }
`})
	c, err := Talhelper(filepath.Join(dir, "talconfig.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	expect(t, c, map[string]string{"talos_extensions": "",
		"talos_machine_schematics": `{ b = { extensions = ["siderolabs/iscsi-tools"] } }`})
}

func TestTalhelperNamesWhatItLeaves(t *testing.T) {
	dir := written(t, map[string]string{
		"talsecret.sops.yaml": "cluster: {}\n",
		"sops.yaml":           "machine: { env: { A: b } }\nsops: { mac: x }\n",
		"talconfig.yaml": talconfig + `
    installDiskSelector: { size: 4GB }
    machineSpec: { secureboot: true, arch: arm64 }
    ignoreHostname: true
    unheardOf: 1
    talosImageURL: ghcr.io/siderolabs/installer
    machineFiles:
      - { path: /var/a, content: "TS_AUTHKEY=1" }
      - { path: /var/b, content: "@b.env" }
  - hostname: green-c
    ipAddress: ${IP}
domain: $DOMAIN
inlineManifests: [{ name: x, contents: "a: b" }]
patches:
  - "[{ op: add, path: /machine/env, value: {} }]"
  - "@sops.yaml"
  - "@../outside.yaml"
  - "machine: [}"
  - "machine: { registries: { config: { cache.lan: { auth: { password: x } } } } }"
cniConfig: { name: custom, urls: [https://example.org/cni.yaml] }
`})
	c, err := Talhelper(filepath.Join(dir, "talconfig.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	expect(t, c, map[string]string{"cni": `"none"`, "talos_config_patches": ""},
		"nodes[0].installDiskSelector: selects a disk by its traits",
		"nodes[0].machineSpec.secureboot: boots with Secure Boot",
		"nodes[0].ignoreHostname: leaves the name",
		"nodes[0].unheardOf: is a field that castle does not know",
		`install.image: "ghcr.io/siderolabs/installer" is no installer of an image factory`,
		"nodes[0].machineFiles[0]: holds a secret (content)",
		"nodes[0].machineFiles[1]: reads a file",
		"nodes[1].ipAddress: holds ${IP}, and castle evaluates no environment",
		`nodes[1]: has no address: ""`,
		"domain: holds $DOMAIN",
		"patches[0]: is an RFC 6902 patch",
		"sops.yaml:patches[1]: is encrypted by SOPS",
		"patches[2]: names a file that castle cannot read below",
		"patches[3]: is no YAML",
		"patches[4]: holds a secret (password)",
		"cniConfig: has the network plugin installed by something else",
		"talsecret.sops.yaml:Talos' secrets: are not read",
	)
}

func TestEndpoints(t *testing.T) {
	for endpoint, want := range map[string][3]string{ // endpoint, api_endpoint, api_port
		"https://10.1.0.5:6443":    {"10.1.0.5", "", ""},
		"https://api.lan:6443":     {"10.1.0.5", `"api.lan"`, ""},
		"https://api.lan:443":      {"10.1.0.5", `"api.lan"`, "443"},
		"https://10.1.0.6":         {"10.1.0.5", `"10.1.0.6"`, ""},
		"10.1.0.5:6443":            {"10.1.0.5", `"api.invalid"`, ""},
		"https://[::1]:x/nonsense": {"10.1.0.5", `"api.invalid"`, ""},
	} {
		text := strings.Replace(talconfig, "https://10.1.0.5:6443", `"`+endpoint+`"`, 1)
		c, err := Talhelper(filepath.Join(written(t, map[string]string{"t.yaml": text}), "t.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		s := settings(c)
		if got := [3]string{c.Endpoint, s["api_endpoint"], s["api_port"]}; got != want {
			t.Errorf("%s: %q, want %q", endpoint, got, want)
		}
	}
	// Without a VIP, an address is that of a load balancer or of the only control plane.
	text := strings.Replace(talconfig, "vip:", "# vip:", 1)
	c, err := Talhelper(filepath.Join(written(t, map[string]string{"t.yaml": text}), "t.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	expect(t, c, map[string]string{"vip": "null", "api_endpoint": `"10.1.0.5"`})
}

func TestTopfReadsItsFolders(t *testing.T) {
	dir := written(t, map[string]string{
		"topf.yaml": `
clusterName: blue
clusterEndpoint: https://api.lan:6443
kubernetesVersion: 1.36.1
talosVersion: 1.13.2
schematicId: 613e1592b2da41ae5e265e8789429f22e121aab91cb4deb6bc3c0b6262961245
nodesProvider: ./nodes.sh
secretsProvider: ./secrets.sh
data: { region: eu }
nodes:
  - { host: b.lan, ip: 10.2.0.12, role: worker, talosVersion: 1.12.1 }
  - { host: a.lan, ip: 10.2.0.11, role: control-plane }
  - { host: nameless, role: worker }
`,
		"all/00-disk.yaml":       "machine: { install: { disk: /dev/vda } }\n",
		"all/01-name.yaml.tpl":   "hostname: {{ .Node.Host }}\n",
		"all/notes.txt":          "no patch",
		"control-plane/vip.yaml": "kind: Layer2VIPConfig\nname: 10.2.0.5\nlink: eth0\n",
		"node/b.lan/0.yml": "machine: { nodeLabels: { a: b } }\n---\n" +
			"machine: { env: { a: \"1\" } }\n",
		"worker/1.yaml":                 "- { op: remove, path: /machine }\n",
		"worker/0.yaml":                 "cluster: { token: ref+vault://x }\n",
		"node/../outside/unrelated.yml": "a: b\n",
	})
	c, err := Topf(dir)
	if err != nil {
		t.Fatal(err)
	}
	if c.Name != "blue" || c.Endpoint != "10.2.0.5" || len(c.Nodes) != 2 || c.Nodes[0].Name != "a" ||
		!c.Nodes[0].ControlPlane || c.Nodes[0].InstallDisk != "/dev/vda" || c.Nodes[1].Name != "b" {
		t.Errorf("%+v", c)
	}
	expect(t, c, map[string]string{
		"talos_version": `"v1.13.2"`, "kubernetes_version": `"1.36.1"`, "api_endpoint": `"api.lan"`,
		"talos_schematic_id":           `"613e1592b2da41ae5e265e8789429f22e121aab91cb4deb6bc3c0b6262961245"`,
		"node_labels":                  `{ b = { a = "b" } }`,
		"talos_machine_config_patches": `{ b = ["machine:\n  env:\n    a: \"1\"\n"] }`,
	},
		"topf.yaml:nodesProvider: names a program that lists machines",
		"topf.yaml:secretsProvider: names a program",
		"topf.yaml:nodes[0].talosVersion: is for one machine",
		"topf.yaml:nodes[0]: is called b,",
		`topf.yaml:nodes[2]: has no address: ""`,
		"01-name.yaml.tpl:patch: is a Go template",
		"0.yaml:0.yaml: is a secret of SOPS or vals",
		"1.yaml:1.yaml: is an RFC 6902 patch",
	)
}

func TestUnreadableConfigurationsAreErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":                          "is not one YAML mapping",
		"- a\n":                     "is not one YAML mapping",
		"a: [\n":                    "did not find expected node content",
		"clusterName: a\nsops: {}":  "is encrypted by SOPS",
		"clusterName: a\nnodes: []": "names no machine that castle can take over",
		"nodes: [{ hostname: A }]":  `:1: nodes[0]: has the name "A", which castle cannot use`,
		"a: &a [*a]\nnodes: *a":     "names no machine",
	} {
		dir := written(t, map[string]string{"talconfig.yaml": text, "topf.yaml": text})
		_, err := Talhelper(filepath.Join(dir, "talconfig.yaml"))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
		if _, err := Topf(dir); err == nil {
			t.Errorf("%q: TOPF: no error", text)
		}
	}
	_, err := Topf(t.TempDir())
	if err == nil || !strings.HasSuffix(err.Error(), "topf.yaml does not exist") {
		t.Error(err)
	}
}

// A link leads to no file outside of the folder.
func TestPatchesOutsideOfTheFolderStayUnread(t *testing.T) {
	outside := written(t, map[string]string{"patch.yaml": "machine: { env: { A: b } }\n"})
	dir := written(t, map[string]string{
		"talconfig.yaml": strings.Replace(talconfig, "nodes:", "patches: ['@patch.yaml']\nnodes:", 1),
		"topf.yaml": "clusterName: a\nclusterEndpoint: https://api.lan:6443\n" +
			"nodes: [{ host: a, ip: 10.0.0.1, role: control-plane }]\n", "all/README.md": "x",
	})
	for _, link := range []string{"patch.yaml", "all/1.yaml"} {
		if err := os.Symlink(filepath.Join(outside, "patch.yaml"), filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	c, err := Talhelper(filepath.Join(dir, "talconfig.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	expect(t, c, map[string]string{"talos_config_patches": ""}, "patches[0]: names a file that castle cannot")
	if c, err = Topf(dir); err != nil {
		t.Fatal(err)
	}
	expect(t, c, map[string]string{"talos_config_patches": ""}, "1.yaml:patch: is a link",
		"nodes[0]: is called a", "a: names no disk")
}

// A template writes texts of the files between quotes.
func TestTextsStayBetweenTheirQuotes(t *testing.T) {
	for was, is := range map[string]string{
		"installDisk: /dev/nvme0n1": `installDisk: '/dev/sda" }'`,
		"vip: { ip: 10.1.0.5 }":     `vip: { ip: '10.1.0.5"' }`,
		"https://10.1.0.5:6443":     `'https://a"b:6443'`,
		"ipAddress: 10.1.0.11":      `ipAddress: 'fe80::1%"x'`,
		"hostname: green-a":         `hostname: 'a"b'`,
	} {
		text := strings.Replace(talconfig, was, is, 1)
		c, err := Talhelper(filepath.Join(written(t, map[string]string{"t.yaml": text}), "t.yaml"))
		if err != nil {
			continue // without a machine
		}
		if strings.Contains(c.Endpoint+c.Nodes[0].InstallDisk+c.Nodes[0].Address.String(), `"`) {
			t.Errorf("%s: %+v", is, c)
		}
	}
}

func FuzzTalhelper(f *testing.F) {
	f.Add(talconfig)
	f.Add("clusterName: a\nnodes: [{ hostname: a, ipAddress: 10.0.0.1, patches: ['a: &a [*a]'] }]")
	f.Fuzz(func(t *testing.T, text string) {
		dir := written(t, map[string]string{"talconfig.yaml": text})
		c, err := Talhelper(filepath.Join(dir, "talconfig.yaml"))
		if err == nil && len(c.Nodes) == 0 {
			t.Error("a cluster without machines")
		}
	})
}
