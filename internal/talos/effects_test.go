package talos

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/role"

	"github.com/ephemeral-castle/castle/internal/effect"
	emulator "github.com/ephemeral-castle/castle/internal/emulator/talos"
	"github.com/ephemeral-castle/castle/internal/gate"
)

const running = `version: v1alpha1
machine:
  type: controlplane
  token: abc
  install: {disk: /dev/sda, image: "factory.talos.dev/nocloud-installer/a:v1.13.0"}
  kubelet: {image: "ghcr.io/siderolabs/kubelet:v1.35.2"}
  nodeLabels: {tier: a}
cluster:
  apiServer: {image: "registry.k8s.io/kube-apiserver:v1.35.2", certSANs: [192.168.1.210]}
  network: {podSubnets: [10.244.0.0/16]}
---
apiVersion: v1alpha1
kind: UserVolumeConfig
name: longhorn
provisioning: {minSize: 5GiB}
`

// A change of a configuration is judged by what Talos 1.13 does when it gets it.
func TestEffectsOfAConfigurationOnAMachineThatRuns(t *testing.T) {
	for name, test := range map[string]struct {
		change []string // pairs for strings.NewReplacer
		worst  effect.Kind
		texts  []string
	}{
		"nothing": {nil, effect.None, nil},
		"what talosctl writes and the provider does not": {
			[]string{"  type: controlplane", "  type: controlplane\n  certSANs: []\n  sysctls: {}"},
			effect.None, nil},
		"labels":                                {[]string{"tier: a", "tier: b"}, effect.None, nil},
		"the installer is for the next upgrade": {[]string{"a:v1.13.0", "a:v1.13.1"}, effect.None, nil},
		"a mount of the kubelet": {[]string{`v1.35.2"}`, `v1.35.2", extraMounts: [{source: /a}]}`},
			effect.None, nil},
		"files": {[]string{"  token: abc", "  token: abc\n  files: [{path: /a}]"}, effect.Restarts,
			[]string{"machine.files"}},
		"an unknown part restarts": {[]string{"  token: abc", "  token: abc\n  novelty: {a: 1}"},
			effect.Restarts, []string{"machine.novelty.a"}},
		"the network": {[]string{"  token: abc", "  token: abc\n  network: {nameservers: [1.1.1.1]}"},
			effect.Interrupts, []string{"machine.network.nameservers"}},
		"a further name of the API server, such as a new control plane's": {
			[]string{"[192.168.1.210]", "[192.168.1.210, 192.168.1.213]"}, effect.None, nil},
		"arguments of the API server": {[]string{"certSANs:", "extraArgs: {v: 4}, certSANs:"},
			effect.Interrupts, []string{"cluster.apiServer.extraArgs.v"}},
		"another network plugin beside the one that Talos leaves": {
			[]string{"{podSubnets", "{cni: {name: none}, podSubnets"}, effect.Impossible,
			[]string{"cluster.network.cni.name"}},
		"Pod networks": {[]string{"10.244.0.0/16", "10.200.0.0/16"}, effect.Impossible,
			[]string{"cluster.network.podSubnets"}},
		"a patch release": {[]string{"v1.35.2", "v1.35.4"}, effect.Interrupts,
			[]string{"Kubernetes 1.35.2 → 1.35.4 restarts its part of Kubernetes"}},
		"a minor release": {[]string{"v1.35.2", "v1.36.0"}, effect.Interrupts,
			[]string{"Kubernetes 1.35.2 → 1.36.0 restarts its part of Kubernetes"}},
		"a release back": {[]string{"v1.35.2", "v1.35.1"}, effect.Impossible,
			[]string{"Kubernetes 1.35.2 → 1.35.1 goes back"}},
		"a release too far": {[]string{"v1.35.2", "v1.37.0"}, effect.Impossible,
			[]string{"Kubernetes 1.35.2 → 1.37.0 skips a minor release"}},
		"a volume that goes": {[]string{"name: longhorn", "name: other"}, effect.LosesData,
			[]string{"UserVolumeConfig longhorn"}},
		"a new document": {[]string{"---", "---\napiVersion: v1alpha1\nkind: LinkConfig\nname: eth1\n---"},
			effect.Interrupts, []string{"LinkConfig eth1"}},
		"a firewall": {[]string{"---", "---\nkind: NetworkDefaultActionConfig\ningress: block\n---"},
			effect.Interrupts, []string{"NetworkDefaultActionConfig"}},
		"a new volume": {[]string{"---", "---\nkind: UserVolumeConfig\nname: data\n---"}, effect.None, nil},
	} {
		t.Run(name, func(t *testing.T) {
			all, err := Effects([]byte(running), []byte(strings.NewReplacer(test.change...).Replace(running)))
			var texts []string
			for _, e := range all {
				texts = append(texts, e.Text)
			}
			if err != nil || effect.Worst(all) != test.worst || !slices.Equal(texts, test.texts) {
				t.Errorf("got %v: %q, %v", effect.Worst(all), texts, err)
			}
		})
	}
}

func TestEffectsOfTextsThatAreNoConfiguration(t *testing.T) {
	all, err := Effects([]byte("a: ["), []byte(running))
	if err == nil || strings.Contains(err.Error(), "[") {
		t.Errorf("got %v, %v", all, err)
	}
}

func TestActiveConfigIsWhatTheMachineRuns(t *testing.T) {
	l := newLab(t, emulator.Delays{})
	l.raise(1)
	var config []byte
	await(t, gate.Gate{Check: func(ctx context.Context) (err error) {
		config, err = ActiveConfig(ctx, l.talosconfig(role.Admin, l.address(1)), l.address(1))
		return err
	}})
	if !strings.Contains(string(config), "version: v1alpha1") {
		t.Fatalf("got %d bytes", len(config))
	}
	reader := l.talosconfig(role.Reader, l.address(1))
	if _, err := ActiveConfig(t.Context(), reader, l.address(1)); err == nil {
		t.Error("it holds keys, and a reader gets it")
	}
	if all, err := Effects(config, config); len(all) > 0 || err != nil {
		t.Errorf("got %v, %v", all, err)
	}
}
