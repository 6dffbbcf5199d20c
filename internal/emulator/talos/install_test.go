package talos_test

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc/codes"

	"github.com/ephemeral-castle/castle/internal/emulator/talos"
)

// installer is an image of the image factory; its schematic is abc.
func installer(release string) string { return "factory.talos.dev/nocloud-installer/abc:" + release }

func containerd() *common.ContainerdInstance {
	return &common.ContainerdInstance{Driver: common.ContainerDriver_CRI,
		Namespace: common.ContainerdNamespace_NS_SYSTEM}
}

// pull returns the name of the image that was pulled.
func pull(t *testing.T, c *client.Client, ref string) (name string, err error) {
	t.Helper()
	stream, err := c.ImageClient.Pull(within(t), &machineapi.ImageServicePullRequest{Containerd: containerd(),
		ImageRef: ref})
	for err == nil {
		var answer *machineapi.ImageServicePullResponse
		if answer, err = stream.Recv(); answer.GetName() != "" {
			name = answer.GetName()
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return name, err
}

// begin starts an installation, which has begun when it returns.
func begin(t *testing.T, c *client.Client, name string) (machineapi.LifecycleService_UpgradeClient, string,
	error) {
	t.Helper()
	stream, err := c.LifecycleClient.Upgrade(within(t), &machineapi.LifecycleServiceUpgradeRequest{
		Containerd: containerd(), Source: &machineapi.InstallArtifactsSource{ImageName: name}})
	if err != nil {
		return nil, "", err
	}
	first, err := stream.Recv()
	return stream, first.GetProgress().GetMessage(), err
}

// finish reads an installation to its end.
func finish(t *testing.T, stream machineapi.LifecycleService_UpgradeClient) (text string, code int32) {
	t.Helper()
	code = -1
	for {
		answer, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return text, code
		}
		if err != nil {
			t.Fatal(err)
		}
		switch r := answer.GetProgress().GetResponse().(type) {
		case *machineapi.LifecycleServiceInstallProgress_Message:
			text += r.Message
		case *machineapi.LifecycleServiceInstallProgress_ExitCode:
			code = r.ExitCode
		}
	}
}

// upgrade pulls and installs a release beside the one that runs.
func (l *lab) upgrade(address, release string) (text string, code int32) {
	l.t.Helper()
	c := l.as(role.Admin, address)
	name, err := pull(l.t, c, installer(release))
	if err != nil {
		l.t.Fatal(err)
	}
	stream, first, err := begin(l.t, c, name)
	if err != nil {
		l.t.Fatal(err)
	}
	l.clock.advance(step)
	text, code = finish(l.t, stream)
	return first + text, code
}

func TestAnInstallationChangesWhatBootsNext(t *testing.T) {
	l := newLab(t)
	l.raise(1, 0)
	cp := l.address(1)
	text, code := l.upgrade(cp, "v1.13.1")
	if code != 0 || !strings.Contains(text, "host Talos version: v1.13.0\n") ||
		!strings.HasSuffix(text, "installation of v1.13.1 complete\n") {
		t.Errorf("exit code %d:\n%s", code, text)
	}
	before := l.bootID(cp)
	if got := l.release(cp); got != "v1.13.0" || l.schematic(cp) != "" || len(l.down) != 0 {
		t.Errorf("before its restart it runs %s %s; down: %v", got, l.schematic(cp), l.down)
	}
	if err := l.as(role.Operator, cp).Reboot(within(t)); err != nil {
		t.Fatal(err)
	}
	l.clock.advance(3 * step)
	if got := l.release(cp); got != "v1.13.1" || l.schematic(cp) != "abc" || l.bootID(cp) == before {
		t.Errorf("after its restart it runs %s %s", got, l.schematic(cp))
	}
}

func TestPullsFailWithTheTextsOfContainerd(t *testing.T) {
	l := newLab(t)
	l.raise(1, 0)
	c := l.as(role.Operator, l.address(1))
	for ref, want := range map[string]struct {
		code codes.Code
		text string
	}{
		"factory.example.org/nocloud-installer/abc:v1.13.1": {codes.Unknown, "dial tcp: lookup " +
			"factory.example.org on 127.0.0.53:53: no such host"},
		installer("latest"):                        {codes.NotFound, "error pulling image: failed to pull"},
		"ghcr.io/siderolabs/kubelet:v1.36.3":       {codes.NotFound, "kubelet:v1.36.3: not found"},
		"nothing":                                  {codes.Unknown, "failed to parse image reference"},
		"ghcr.io/siderolabs/installer:v1.13.1-a.0": {codes.OK, ""},
	} {
		_, err := pull(t, c, ref)
		if want.code == codes.OK && err == nil {
			continue
		}
		wantRefusal(t, err, want.code, want.text)
	}
	_, _, err := begin(t, l.as(role.Admin, l.address(1)), installer("v1.13.1"))
	wantRefusal(t, err, codes.Internal, "not found in containerd store")
	_, _, err = begin(t, c, installer("v1.13.1"))
	wantRefusal(t, err, codes.PermissionDenied, "not authorized")
}

func TestAPulledImageHasItsNameAndItsDigest(t *testing.T) {
	l := newLab(t)
	l.raise(1, 0)
	c := l.as(role.Admin, l.address(1))
	name, err := pull(t, c, installer("v1.13.1"))
	if err != nil || !strings.HasPrefix(name, "factory.talos.dev/nocloud-installer/abc@sha256:") {
		t.Fatalf("%s, %v", name, err)
	}
	list, err := c.ImageClient.List(within(t), &machineapi.ImageServiceListRequest{Containerd: containerd()})
	var names []string
	for err == nil {
		var image *machineapi.ImageServiceListResponse
		if image, err = list.Recv(); err == nil {
			names = append(names, image.GetName())
			if !strings.HasSuffix(name, image.GetDigest()) {
				t.Errorf("%s has the digest %s", image.GetName(), image.GetDigest())
			}
		}
	}
	if len(names) != 2 || names[0] != installer("v1.13.1") || names[1] != name {
		t.Errorf("images: %v", names)
	}
	_, err = pull(t, l.as(role.Reader, l.address(1)), installer("v1.13.1"))
	wantRefusal(t, err, codes.PermissionDenied, "not authorized")
}

func TestOneInstallationAtATimeOutlivesItsCaller(t *testing.T) {
	l := newLab(t)
	l.raise(1, 0)
	cp := l.address(1)
	c := l.as(role.Admin, cp)
	name, err := pull(t, c, installer("v1.13.1"))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := begin(t, c, name); err != nil {
		t.Fatal(err)
	}
	_, _, err = begin(t, l.as(role.Admin, cp), name)
	wantRefusal(t, err, codes.FailedPrecondition, "another installation/upgrade is already in progress")
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	l.clock.advance(step)
	if err := l.as(role.Admin, cp).Reboot(within(t)); err != nil {
		t.Fatal(err)
	}
	l.clock.advance(3 * step)
	if got := l.release(cp); got != "v1.13.1" {
		t.Errorf("it runs %s", got)
	}
}

func TestAnInstallerRefusesAReleaseThatIsTooFar(t *testing.T) {
	l := newLab(t)
	l.raise(1, 0)
	text, code := l.upgrade(l.address(1), "v1.16.0")
	if code != 1 || !strings.Contains(text, "host version 1.13.0 is too old to upgrade to Talos 1.16.0") {
		t.Errorf("exit code %d:\n%s", code, text)
	}
	if text, code := l.upgrade(l.address(1), "v1.11.0"); code != 1 || !strings.Contains(text, "too new") {
		t.Errorf("exit code %d:\n%s", code, text)
	}
}

func TestOlderMachinesDoNotKnowTheServices(t *testing.T) {
	l := newLab(t)
	if err := l.fleet.Boot(talos.Machine{Address: l.address(1), Version: "v1.12.4"}); err != nil {
		t.Fatal(err)
	}
	l.clock.advance(step)
	if err := l.apply(l.address(1), l.machineConfig(machine.TypeControlPlane)); err != nil {
		t.Fatal(err)
	}
	l.clock.advance(2 * step)
	_, err := pull(t, l.as(role.Admin, l.address(1)), installer("v1.13.1"))
	wantRefusal(t, err, codes.Unimplemented, "unknown service machine.ImageService")
	_, _, err = begin(t, l.as(role.Admin, l.address(1)), installer("v1.13.1"))
	wantRefusal(t, err, codes.Unimplemented, "unknown service machine.LifecycleService")
}

// META has the former boot entry until the new system has been running and ready.
func TestAFailedUpgradeReturnsToTheFormerRelease(t *testing.T) {
	l := newLab(t)
	l.fleet.FailUpgrade("blue-01")
	l.raise(1, 0)
	cp := l.address(1)
	if err := l.bootstrap(cp); err != nil {
		t.Fatal(err)
	}
	l.clock.advance(5 * step)
	l.upgrade(cp, "v1.13.1")
	before := l.bootID(cp)
	if err := l.as(role.Admin, cp).Reboot(within(t)); err != nil {
		t.Fatal(err)
	}
	l.clock.advance(2 * step)
	failing := l.bootID(cp)
	if got := l.release(cp); got != "v1.13.1" || failing == before ||
		l.status(cp).Stage.String() != "booting" {
		t.Errorf("at first it runs %s and is %s", got, l.status(cp).Stage)
	}
	l.clock.advance(step * 3 / 4)
	if got := l.status(cp); got.Stage.String() != "rebooting" || !got.Status.Ready {
		t.Errorf("when its boot has failed: %+v", got)
	}
	l.clock.advance(5 * step)
	if got := l.release(cp); got != "v1.13.0" || l.bootID(cp) == failing ||
		l.status(cp).Stage.String() != "running" {
		t.Errorf("at last it runs %s and is %s", got, l.status(cp).Stage)
	}
	if len(l.down) != 1 {
		t.Errorf("OnDown was called for %v: the failing boot never served", l.down)
	}
	l.upgrade(cp, "v1.13.1")
	if err := l.as(role.Admin, cp).Reboot(within(t)); err != nil {
		t.Fatal(err)
	}
	l.clock.advance(5 * step)
	if got := l.release(cp); got != "v1.13.1" {
		t.Errorf("the second time it runs %s", got)
	}
}

func TestRollbackBootsTheFormerSystem(t *testing.T) {
	l := newLab(t)
	l.raise(1, 0)
	cp := l.address(1)
	wantRefusal(t, l.as(role.Admin, cp).Rollback(within(t)), codes.Unknown, "label does not exist")
	l.upgrade(cp, "v1.13.1")
	if err := l.as(role.Admin, cp).Reboot(within(t)); err != nil {
		t.Fatal(err)
	}
	l.clock.advance(3 * step)
	if err := l.as(role.Admin, cp).Rollback(within(t)); err != nil {
		t.Fatal(err)
	}
	l.clock.advance(3 * step)
	if got := l.release(cp); got != "v1.13.0" || l.schematic(cp) != "" {
		t.Errorf("it runs %s %s", got, l.schematic(cp))
	}
}

// Two installations without a restart overwrite the system that runs: GRUB has two entries.
func TestASecondInstallationReplacesTheRunningSystem(t *testing.T) {
	l := newLab(t)
	l.raise(1, 0)
	cp := l.address(1)
	l.upgrade(cp, "v1.13.1")
	l.upgrade(cp, "v1.13.2")
	for _, want := range []string{"v1.13.1", "v1.13.2"} {
		if err := l.as(role.Admin, cp).Rollback(within(t)); err != nil {
			t.Fatal(err)
		}
		l.clock.advance(3 * step)
		if got := l.release(cp); got != want {
			t.Errorf("it runs %s, want %s", got, want)
		}
	}
}

// A machine finds the registries of the internet, and those for which its configuration names a mirror.
func TestAMirrorHasTheImagesOfItsRegistry(t *testing.T) {
	l := newLab(t)
	l.raise(1, 0)
	const image = "factory.example.org/nocloud-installer/abc:v1.13.1"
	if _, err := l.change(auto, false, "apiVersion: v1alpha1\nkind: RegistryMirrorConfig\n"+
		"name: factory.example.org\nendpoints: [{url: 'https://mirror.local'}]\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := pull(t, l.as(role.Admin, l.address(1)), image); err != nil {
		t.Error(err)
	}
}

// A disk's image has a schematic of its own; without one, it is that of the installer in the configuration.
func TestTheSchematicIsThatOfTheImage(t *testing.T) {
	l := newLab(t)
	for n, schematic := range map[int]string{1: "def", 2: ""} {
		if err := l.fleet.Boot(talos.Machine{Address: l.address(n), Version: "v1.13.0",
			Schematic: schematic}); err != nil {
			t.Fatal(err)
		}
	}
	l.clock.advance(step)
	for n := 1; n <= 2; n++ {
		if err := l.apply(l.address(n), l.machineConfig(machine.TypeControlPlane, newInstaller)); err != nil {
			t.Fatal(err)
		}
	}
	l.clock.advance(2 * step)
	if one, two := l.schematic(l.address(1)), l.schematic(l.address(2)); one != "def" || two != "abc" {
		t.Errorf("they have %q and %q", one, two)
	}
}
