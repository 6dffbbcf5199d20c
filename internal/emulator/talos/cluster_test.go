package talos_test

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc/codes"
)

func TestBootstrapNeedsAReadyMachineWithoutData(t *testing.T) {
	l := newLab(t)
	cp, worker := l.bootNew(1), l.bootNew(2)
	l.clock.advance(step)
	for address, kind := range map[string]machine.Type{cp: machine.TypeControlPlane,
		worker: machine.TypeWorker} {
		if err := l.apply(address, l.machineConfig(kind)); err != nil {
			t.Fatal(err)
		}
	}
	l.clock.advance(step)
	wantRefusal(t, l.bootstrap(cp), codes.FailedPrecondition, "bootstrap is not available yet")
	l.clock.advance(step)
	wantRefusal(t, l.bootstrap(worker), codes.Unimplemented,
		"bootstrap is only available on control plane nodes")
	if err := l.bootstrap(cp); err != nil {
		t.Fatal(err)
	}
	wantRefusal(t, l.bootstrap(cp), codes.AlreadyExists, "etcd data directory is not empty")
}

func TestControlPlanesJoinEtcdOneLearnerAtATime(t *testing.T) {
	l := newLab(t)
	l.raise(3, 1)
	if got := l.members(l.address(2)); !strings.Contains(got, "no controlplane endpoints discovered yet") {
		t.Errorf("before the bootstrap: %s", got)
	}
	if err := l.bootstrap(l.address(1)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"blue-01, ? learner", // the first serves and the second was added
		"blue-01, blue-02 learner",
		"blue-01, blue-02, ? learner",
		"blue-01, blue-02, blue-03 learner",
		"blue-01, blue-02, blue-03",
	} {
		l.clock.advance(step)
		if got := l.members(l.address(1)); got != want {
			t.Fatalf("members: %s; want %s", got, want)
		}
	}
	_, err := l.as(role.Admin, l.address(4)).EtcdMemberList(within(t), &machineapi.EtcdMemberListRequest{})
	wantRefusal(t, err, codes.Unimplemented, "member list is only available on control plane nodes")
}

func TestHeldLearnerIsPromotedWhenReleased(t *testing.T) {
	l := newLab(t)
	l.fleet.HoldLearner("blue-02")
	l.raise(2, 0)
	if err := l.bootstrap(l.address(1)); err != nil {
		t.Fatal(err)
	}
	l.clock.advance(10 * step)
	if got := l.members(l.address(1)); got != "blue-01, blue-02 learner" {
		t.Fatalf("held: %s", got)
	}
	learner := l.as(role.Admin, l.address(2))
	if s, err := learner.EtcdStatus(within(t)); err != nil ||
		!s.GetMessages()[0].GetMemberStatus().GetIsLearner() {
		t.Errorf("a learner's status: %v, %v", s, err)
	}
	_, err := learner.EtcdAlarmList(within(t))
	wantRefusal(t, err, codes.Unknown, "etcdserver: rpc not supported for learner")
	l.fleet.ReleaseLearner("blue-02")
	l.clock.advance(step)
	if got := l.members(l.address(1)); got != "blue-01, blue-02" {
		t.Errorf("released: %s", got)
	}
}

func TestEtcdNeedsAQuorumAndElectsAnotherLeader(t *testing.T) {
	l := newLab(t)
	l.raise(3, 0)
	if err := l.bootstrap(l.address(1)); err != nil {
		t.Fatal(err)
	}
	l.clock.advance(10 * step)
	leader := func() uint64 {
		s, err := l.as(role.Admin, l.address(3)).EtcdStatus(within(t))
		if err != nil {
			t.Fatal(err)
		}
		return s.GetMessages()[0].GetMemberStatus().GetLeader()
	}
	first := leader()
	l.fleet.Halt(l.address(1))
	if second := leader(); second == 0 || second == first {
		t.Errorf("the leader was %x and is %x", first, second)
	}
	l.fleet.Halt(l.address(2))
	if got := leader(); got != 0 {
		t.Errorf("one of three has a leader: %x", got)
	}
	if got := l.members(l.address(3)); !strings.Contains(got, "etcdserver: no leader") {
		t.Errorf("without a quorum: %s", got)
	}
	l.bootNew(1)
	l.clock.advance(3 * step)
	if got := l.members(l.address(3)); got != "blue-01, blue-02, blue-03" {
		t.Errorf("with two of three again: %s", got)
	}
}

func TestOnBootstrapIsCalledOnceWithTheClusterSpec(t *testing.T) {
	l := newLab(t)
	l.bootNew(1)
	l.clock.advance(step)
	err := l.apply(l.address(1), l.machineConfig(machine.TypeControlPlane, `
machine:
  network: {interfaces: [{interface: eth0, vip: {ip: 192.168.1.210}}]}
  nodeLabels: {castle: blue}
  nodeTaints: {example.org/late: NoExecute}
  kubelet:
    extraArgs: {rotate-server-certificates: true}
    extraConfig: {registerWithTaints: [{key: example.org/early, value: a, effect: NoSchedule}]}
cluster:
  apiServer:
    certSANs: [k8s.example.org]
    extraArgs: {service-account-issuer: "https://k8s.example.org"}
  inlineManifests: [{name: note, contents: "kind: ConfigMap"}]
`))
	if err != nil {
		t.Fatal(err)
	}
	l.clock.advance(2 * step)
	if err := l.bootstrap(l.address(1)); err != nil {
		t.Fatal(err)
	}
	l.clock.advance(step)
	if len(l.bootstraps) != 0 {
		t.Fatal("etcd has only just started")
	}
	l.clock.advance(step)
	if err := l.as(role.Admin, l.address(1)).Reboot(within(t)); err != nil {
		t.Fatal(err)
	}
	l.clock.advance(10 * step)
	if len(l.bootstraps) != 1 {
		t.Fatalf("OnBootstrap was called %d times", len(l.bootstraps))
	}
	s := l.bootstraps[0]
	if s.Name != "blue" || s.Endpoint != "https://"+l.vip()+":6443" ||
		!slices.Equal(s.VIPs, []string{"192.168.1.210"}) ||
		s.APIPort != 6443 ||
		!slices.Equal(s.KubeletArgs["rotate-server-certificates"], []string{"true"}) ||
		!slices.Equal(s.APIServerArgs["service-account-issuer"], []string{"https://k8s.example.org"}) {
		t.Errorf("spec: %+v", s)
	}
	if string(s.CACert) != string(l.secrets.Certs.K8s.Crt) || len(s.CAKey) == 0 ||
		len(s.AggregatorCAKey) == 0 ||
		string(s.ServiceAccountKey) != string(l.secrets.Certs.K8sServiceAccount.Key) ||
		len(s.InlineManifests) != 1 {
		t.Error("certificates, keys or manifests are not those of the configuration")
	}
	if len(l.configured) != 2 { // installed, and rebooted
		t.Fatalf("OnMachineConfigured was called %d times", len(l.configured))
	}
	n := l.configured[0]
	if n.Hostname != "blue-01" || !n.ControlPlane || n.KubernetesVersion != "v1.36.3" ||
		n.Labels["castle"] != "blue" ||
		!maps.Equal(n.Taints, map[string]string{"node-role.kubernetes.io/control-plane": "NoSchedule",
			"example.org/late": "NoExecute"}) ||
		!maps.Equal(n.RegisterTaints, map[string]string{"node-role.kubernetes.io/control-plane": "NoSchedule",
			"example.org/early": "a:NoSchedule"}) {
		t.Errorf("machine: %+v", n)
	}
	for _, san := range []string{"k8s.example.org", l.vip(), "kubernetes.default.svc", "10.96.0.1",
		"localhost", l.address(1), "blue-01"} {
		if !slices.Contains(n.SANs, san) {
			t.Errorf("%s is not among the names %v", san, n.SANs)
		}
	}
}

func TestAnotherNameReachesTheNodeAndTheCertificate(t *testing.T) {
	l := newLab(t)
	l.raise(1, 0)
	if _, err := l.as(role.Admin, l.address(1)).ApplyConfiguration(within(t),
		&machineapi.ApplyConfigurationRequest{Mode: machineapi.ApplyConfigurationRequest_AUTO,
			Data: l.machineConfig(machine.TypeControlPlane, "cluster: {apiServer: {certSANs: [192.0.2.213]}}",
				"apiVersion: v1alpha1\nkind: HostnameConfig\nauto: off\nhostname: renamed\n")}); err != nil {
		t.Fatal(err)
	}
	if len(l.configured) != 2 {
		t.Fatalf("OnMachineConfigured was called %d times", len(l.configured))
	}
	n := l.configured[1]
	if n.Hostname != "renamed" || !slices.Contains(n.SANs, "192.0.2.213") ||
		!slices.Contains(n.SANs, "renamed") {
		t.Errorf("machine: %+v", n)
	}
}

var credentials = regexp.MustCompile(`-data: .*`)

func TestKubeconfigIsSignedByTheConfigurationsCA(t *testing.T) {
	l := newLab(t)
	l.raise(1, 1)
	raw, err := l.as(role.Admin, l.address(1)).Kubeconfig(within(t))
	if err != nil {
		t.Fatal(err)
	}
	text := string(raw)
	if !strings.Contains(text, "server: https://"+l.vip()+":6443\n") {
		t.Errorf("no endpoint in:\n%s", credentials.ReplaceAllString(text, "-data: …"))
	}
	field := func(name string) []byte {
		_, after, found := strings.Cut(text, name+": ")
		if !found {
			t.Fatalf("no %s", name)
		}
		value, _, _ := strings.Cut(after, "\n")
		data, err := base64.StdEncoding.DecodeString(value)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(field("certificate-authority-data")) {
		t.Fatal("no CA")
	}
	block, _ := pem.Decode(field("client-certificate-data"))
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cert.Verify(x509.VerifyOptions{Roots: roots,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		t.Error(err)
	}
	if !slices.Equal(cert.Subject.Organization, []string{"system:masters"}) {
		t.Errorf("organisation: %v", cert.Subject.Organization)
	}
	_, err = l.as(role.Admin, l.address(2)).Kubeconfig(within(t))
	wantRefusal(t, err, codes.Unimplemented, "kubeconfig is only available on control plane nodes")
}

func TestControlPlaneRoutesToOtherMachines(t *testing.T) {
	l := newLab(t)
	l.raise(2, 1)
	down := l.bootNew(4)
	l.fleet.Halt(down)
	c := l.as(role.Admin, l.address(1))

	resp, err := c.Version(client.WithNodes(within(t), l.address(2), l.address(3), down))
	var nodes []string
	for _, m := range resp.GetMessages() {
		nodes = append(nodes, m.GetMetadata().GetHostname())
	}
	if !slices.Equal(nodes, []string{l.address(2), l.address(3)}) || err == nil ||
		!strings.Contains(err.Error(), down+": rpc error: code = Unavailable") {
		t.Errorf("fan-out: answers of %v, error %v", nodes, err)
	}
	if raw, err := c.Kubeconfig(client.WithNodes(within(t), l.address(2))); err != nil || len(raw) == 0 {
		t.Errorf("a stream through another machine: %v", err)
	}
	if resp, err := c.Version(client.WithNode(within(t), "blue-02")); err != nil ||
		resp.GetMessages()[0].GetMetadata() != nil {
		t.Errorf("one target: %v, %v", resp, err)
	}
	_, err = c.Version(client.WithNode(within(t), l.address(2)+":50000"))
	wantRefusal(t, err, codes.Internal, "invalid target")

	worker := l.as(role.Admin, l.address(3))
	if _, err := worker.Version(client.WithNode(within(t), l.address(3))); err != nil {
		t.Errorf("a worker about itself: %v", err)
	}
	_, err = worker.Version(client.WithNode(within(t), l.address(1)))
	wantRefusal(t, err, codes.PermissionDenied, "no request forwarding")
}

func TestSameSecretsFoundANewClusterOnBlankDisks(t *testing.T) {
	l := newLab(t)
	for range 2 {
		l.raise(2, 0)
		if err := l.bootstrap(l.address(1)); err != nil {
			t.Fatal(err)
		}
		l.clock.advance(5 * step)
		if got := l.members(l.address(1)); got != "blue-01, blue-02" {
			t.Errorf("members: %s", got)
		}
		l.fleet.Remove(l.address(1))
		l.fleet.Remove(l.address(2))
	}
	if len(l.bootstraps) != 2 {
		t.Errorf("the owner OnBootstrap was called %d times", len(l.bootstraps))
	}
}

func TestMachineWithANewDiskReplacesItsFormerMember(t *testing.T) {
	l := newLab(t)
	l.raise(3, 0)
	if err := l.bootstrap(l.address(1)); err != nil {
		t.Fatal(err)
	}
	l.clock.advance(10 * step)
	l.fleet.Remove(l.address(3))
	l.bootNew(3)
	l.clock.advance(step)
	if err := l.apply(l.address(3), l.machineConfig(machine.TypeControlPlane)); err != nil {
		t.Fatal(err)
	}
	l.clock.advance(5 * step)
	if got := l.members(l.address(1)); got != "blue-01, blue-02, blue-03" {
		t.Errorf("members: %s", got)
	}
}
