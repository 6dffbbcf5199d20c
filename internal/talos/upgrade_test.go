package talos

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/role"

	emulator "github.com/ephemeral-castle/castle/internal/emulator/talos"
)

// restarted lets machine n restart and returns how it is then.
func (l *lab) restarted(n int) Condition {
	l.t.Helper()
	node := l.node(n, role.Admin)
	before := l.condition(n)
	if err := node.Reboot(l.t.Context()); err != nil {
		l.t.Fatal(err)
	}
	after, err := node.AwaitRestart(l.bounded(), before.BootID, func(string) {})
	if err != nil {
		l.t.Fatal(err)
	}
	return after
}

func TestInstallChangesNothingBeforeTheRestart(t *testing.T) {
	l := newLab(t, emulator.Delays{Install: 20 * time.Millisecond, Pull: 20 * time.Millisecond})
	l.serving(1)
	before, progress := l.condition(1), &words{}
	if err := l.node(1, role.Admin).Install(l.bounded(), installer, progress.say); err != nil {
		t.Fatal(err)
	}
	if !progress.has("has pulled factory.talos.dev/nocloud-installer/abc@sha256:") ||
		progress.all[1] != "running Talos installer v1.13.1" || // whole lines, without their times
		progress.all[len(progress.all)-1] != "installation of v1.13.1 complete" {
		t.Errorf("progress: %q", progress.all)
	}
	if c := l.condition(1); c.Release != "v1.13.0" || c.BootID != before.BootID || !c.Ready {
		t.Errorf("before the restart: %+v", c)
	}
	if c := l.restarted(1); c.Release != "v1.13.1" || c.Schematic != "abc" {
		t.Errorf("after the restart: %+v", c)
	}
}

func TestAnUpgradeThatFailsIsBackAtTheFormerRelease(t *testing.T) {
	l := newLab(t, emulator.Delays{})
	l.serving(1)
	l.fleet.FailUpgrade(l.address(1))
	if err := l.node(1, role.Admin).Install(l.bounded(), installer, func(string) {}); err != nil {
		t.Fatal(err)
	}
	before := l.condition(1)
	if c := l.restarted(1); c.Release != "v1.13.0" || c.BootID == before.BootID {
		t.Errorf("got %+v", c)
	}
}

func TestInstallFailsWithTheReason(t *testing.T) {
	l := newLab(t, emulator.Delays{})
	l.serving(1)
	for image, want := range map[string]string{
		"factory.example.org/installer/abc:v1.13.1": `failed to pull image "factory.example.org/installer/` +
			`abc:v1.13.1": failed to resolve reference`,
		"factory.talos.dev/nocloud-installer/abc:v1": "error pulling image: ",
		"factory.talos.dev/nocloud-installer/abc:v1.17.0": "the installer has failed with exit code 1: " +
			"Error: pre-flight checks failed: host version 1.13.0 is too old",
	} {
		pulled := l.node(1, role.Admin).Pull(l.bounded(), image)
		err := l.node(1, role.Admin).Install(l.bounded(), image, func(string) {})
		if runs := strings.Contains(want, "pre-flight"); runs != (pulled == nil) {
			t.Errorf("%s is pulled: %v", image, pulled)
		}
		if err == nil || !strings.HasPrefix(err.Error(), "machine "+l.address(1)+": ") ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", image, err)
		}
	}
	err := l.node(1, role.Reader).Install(l.bounded(), installer, func(string) {})
	if err == nil || !strings.Contains(err.Error(), "may not install Talos (os:admin may)") {
		t.Errorf("a reader: %v", err)
	}
}

// A castle that was killed may have left an installation that goes on.
func TestInstallWaitsForAnotherInstallation(t *testing.T) {
	l, steps := newHeldLab(t)
	l.serving(1)
	installed := sync.OnceFunc(steps.hold(installation))
	progress, first := &words{}, make(chan struct{})
	ctx, kill := context.WithCancelCause(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- l.node(1, role.Admin).Install(ctx, installer, func(text string) {
			if strings.HasPrefix(text, "running Talos") {
				close(first)
			}
		})
	}()
	<-first
	killed := errors.New("killed")
	kill(killed)
	if err := <-done; !errors.Is(err, killed) {
		t.Errorf("got %v", err)
	}
	err := l.node(1, role.Admin).Install(l.bounded(), installer, func(text string) {
		progress.say(text)
		if strings.HasPrefix(text, "another") {
			installed()
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if !progress.has("another installation is in progress there") ||
		!progress.has("installation of v1.13.1 complete") {
		t.Errorf("progress: %q", progress.all)
	}
}

// Machines before v1.13 know one call, which restarts them.
func TestInstallOnOlderMachinesRestartsThem(t *testing.T) {
	l := newLab(t, emulator.Delays{})
	place(l, 1, machine.TypeControlPlane, "v1.12.4")
	l.bootstrap(1)
	n := l.node(1, role.Admin)
	if err := n.AwaitReady(l.bounded(), func(string) {}); err != nil {
		t.Fatal(err)
	}
	before, progress := l.condition(1), &words{}
	if err := n.Pull(l.bounded(), installer); err != nil {
		t.Error(err)
	}
	if err := n.Install(l.bounded(), installer, progress.say); err != nil {
		t.Fatal(err)
	}
	if c, err := n.AwaitRestart(l.bounded(), before.BootID, progress.say); err != nil ||
		c.Release != "v1.13.1" || !progress.has("its Talos installs and restarts by itself") {
		t.Errorf("%+v, %v; progress: %q", c, err, progress.all)
	}
	if !TraitsOf(before.Release).InstallRestarts || TraitsOf("v1.13.1").InstallRestarts ||
		!TraitsOf("v1.13.1").ApplyRestarts || TraitsOf("v1.14.0").ApplyRestarts {
		t.Error("the traits say something else")
	}
}

func TestUpgradePathIsOneMinorReleaseAtATime(t *testing.T) {
	for _, c := range []struct{ from, to, kubernetes, want string }{
		{"v1.13.0", "v1.13.1", "v1.36.3", ""},
		{"v1.13.0", "v1.13.0", "1.36.3", ""},
		{"v1.12.9", "v1.13.0", "v1.35.2", ""},
		{"v1.11.6", "v1.13.0", "v1.34.1", "Talos v1.11.6 → v1.13.0: skips a minor release; upgrade to the " +
			"newest patch of v1.12 first"},
		{"v1.9.0", "v1.12.1", "v1.33.0", "upgrade to the newest patch of v1.10, then of v1.11 first"},
		{"v1.13.1", "v1.13.0", "v1.36.3", ""},
		{"v1.13.0", "v1.12.9", "v1.35.0",
			`no way back over a minor release; set talos_version = "v1.13.0" again, or castle recreate`},
		{"v1.13.9", "v1.14.0", "v1.36.3", "castle knows Talos up to v1.13; choose a release of it"},
		{"v1.13.9", "v2.0.0", "v1.36.3", "castle knows Talos up to v1.13"},
		{"v1.12.0", "v1.13.0", "v1.30.4",
			"it runs Kubernetes 1.31 to 1.36, and the cluster has v1.30.4; bring Kubernetes there first"},
		{"latest", "v1.13.0", "v1.36.3", "releases of Talos, latest → v1.13.0: "},
	} {
		err := UpgradePath(c.from, c.to, c.kubernetes)
		if (c.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s → %s: %v", c.from, c.to, err)
		}
	}
}

var controlPlaneImages = []string{"cluster.apiServer.image", "cluster.controllerManager.image",
	"cluster.scheduler.image", "machine.kubelet.image"}

func TestSetReleaseChangesTheTagsAlone(t *testing.T) {
	l := newLab(t, emulator.Delays{})
	l.serving(1)
	n, before := l.node(1, role.Admin), l.condition(1)
	images := func() (all []string) {
		t.Helper()
		text, err := ActiveConfig(t.Context(), l.talosconfig(role.Admin, l.vip()), l.address(1))
		if err != nil {
			t.Fatal(err)
		}
		documents, err := readDocuments(text)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range controlPlaneImages {
			all = append(all, stringAt(documents[""], path))
		}
		return all
	}
	if changed, err := n.SetRelease(t.Context(), "v1.36.3", controlPlaneImages); changed || err != nil {
		t.Errorf("it has the release: %v, %v", changed, err)
	}
	changed, err := n.SetRelease(t.Context(), "1.36.4", controlPlaneImages[:1])
	if !changed || err != nil {
		t.Fatalf("%v, %v", changed, err)
	}
	if got := images(); got[0] != "registry.k8s.io/kube-apiserver:v1.36.4" ||
		got[1] != "registry.k8s.io/kube-controller-manager:v1.36.3" {
		t.Errorf("images: %v", got)
	}
	if changed, err := n.SetRelease(t.Context(), "v1.36.4", controlPlaneImages); !changed || err != nil {
		t.Errorf("the others: %v, %v", changed, err)
	}
	if got := images(); got[3] != "ghcr.io/siderolabs/kubelet:v1.36.4" ||
		l.condition(1).BootID != before.BootID {
		t.Errorf("images: %v", got)
	}
	if _, err := n.SetRelease(t.Context(), "v1.36.4", []string{"cluster.novelty.image"}); err == nil ||
		!strings.Contains(err.Error(), "names no image at cluster.novelty.image") {
		t.Errorf("got %v", err)
	}
}

// Talos has one place for a configuration that a restart applies.
func TestSetReleaseKeepsAStagedConfiguration(t *testing.T) {
	l := newLab(t, emulator.Delays{})
	l.serving(1)
	text, err := ActiveConfig(t.Context(), l.talosconfig(role.Admin, l.vip()), l.address(1))
	if err != nil {
		t.Fatal(err)
	}
	l.retry(func(c *client.Client) error {
		_, err := c.ApplyConfiguration(t.Context(), &machineapi.ApplyConfigurationRequest{
			Data: append(text, "---\napiVersion: v1alpha1\nkind: KmsgLogConfig\nname: a\n"+
				"url: udp://127.0.0.1:1\n"...),
			Mode: machineapi.ApplyConfigurationRequest_STAGED})
		return err
	}, client.WithConfig(l.configOf()), client.WithEndpoints(l.address(1)))
	n := l.node(1, role.Admin)
	if _, err := n.SetRelease(t.Context(), "v1.36.4", controlPlaneImages); err == nil ||
		!strings.Contains(err.Error(), "restart the machine first") {
		t.Errorf("got %v", err)
	}
	l.restarted(1)
	if changed, err := n.SetRelease(t.Context(), "v1.36.4", controlPlaneImages); !changed || err != nil {
		t.Errorf("after the restart: %v, %v", changed, err)
	}
}

func TestRetagKeepsRepositoryAndVariant(t *testing.T) {
	for image, want := range map[string]string{
		"registry.k8s.io/kube-apiserver:v1.35.2":                "registry.k8s.io/kube-apiserver:v1.36.0",
		"ghcr.io/siderolabs/kubelet:v1.35.2-slim":               "ghcr.io/siderolabs/kubelet:v1.36.0-slim",
		"ghcr.io/siderolabs/kubelet:v1.36.0-rc.1-fat":           "ghcr.io/siderolabs/kubelet:v1.36.0-fat",
		"mirror.local:5000/kubelet":                             "mirror.local:5000/kubelet:v1.36.0",
		"mirror.local:5000/kubelet:v1.35.2@sha256:00aa":         "mirror.local:5000/kubelet:v1.36.0",
		"mirror.local:5000/a/kubelet@sha256:00aa":               "mirror.local:5000/a/kubelet:v1.36.0",
		"mirror.local:5000/kube-scheduler:v1.36.0-alpha.2":      "mirror.local:5000/kube-scheduler:v1.36.0",
		"mirror.local:5000/a-slim/kubelet:v1.35.0":              "mirror.local:5000/a-slim/kubelet:v1.36.0",
		"mirror.local:5000/kubelet:v1.35.2-slim@sha256:00aa-11": "mirror.local:5000/kubelet:v1.36.0-slim",
	} {
		if got := retag(image, "v1.36.0"); got != want {
			t.Errorf("%s: %s, want %s", image, got, want)
		}
	}
}
