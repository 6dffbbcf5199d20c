package talos

import (
	"slices"
	"strings"
	"testing"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/proto"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// FuzzEtcdAnswers reads the answers of two machines. The gate opens only if each of them is a voter that all
// list, with the leader that all follow.
func FuzzEtcdAnswers(f *testing.F) {
	encode := func(m proto.Message) []byte {
		data, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		return data
	}
	list := encode(&machineapi.EtcdMembers{Members: []*machineapi.EtcdMember{
		{Id: 1, Hostname: "blue-cp-01"}, {Id: 2, PeerUrls: []string{"https://192.0.2.2:2380"}}}})
	status := func(id uint64) []byte {
		return encode(&machineapi.EtcdMemberStatus{MemberId: id, Leader: 1})
	}
	f.Add(uint8(2), status(1), list, status(2), list, []byte{})
	f.Add(uint8(2), status(1), list, status(1), list, []byte{})
	f.Add(uint8(2), status(1), list, encode(&machineapi.EtcdMemberStatus{MemberId: 2, IsLearner: true}), list,
		encode(&machineapi.EtcdAlarm{MemberAlarms: []*machineapi.EtcdMemberAlarm{{MemberId: 1, Alarm: 1}}}))
	f.Add(uint8(0), []byte{}, []byte{}, []byte{}, []byte{}, []byte{})
	f.Fuzz(func(t *testing.T, voters uint8, status1, list1, status2, list2, alarm []byte) {
		var nodes []nodeView
		for i, texts := range [][3][]byte{{status1, list1, alarm}, {status2, list2, nil}} {
			var status machineapi.EtcdMemberStatus
			var list machineapi.EtcdMembers
			var alarms machineapi.EtcdAlarm
			if proto.Unmarshal(texts[0], &status) != nil || proto.Unmarshal(texts[1], &list) != nil ||
				proto.Unmarshal(texts[2], &alarms) != nil {
				t.Skip("gRPC refuses it")
			}
			nodes = append(nodes, nodeView{endpoint: []string{"192.0.2.1", "192.0.2.2"}[i], status: &status,
				members: list.GetMembers(), alarms: alarms.GetMemberAlarms()})
		}
		for _, rule := range []rule{etcdCause, eachNode(unhealthy)} {
			rule(nodes)
		}
		wanted := max(int(voters), 1)
		if quorum(wanted, nodes) != nil {
			return
		}
		answered := map[uint64]bool{}
		for _, n := range nodes {
			answered[n.status.GetMemberId()] = true
		}
		for _, n := range nodes {
			if leader := n.status.GetLeader(); leader == 0 || leader != nodes[0].status.GetLeader() {
				t.Errorf("open, and %s follows %d", n.endpoint, leader)
			}
			if len(n.members) != wanted || len(n.alarms) > 0 {
				t.Errorf("open with %d members of %d and %d alarms", len(n.members), wanted, len(n.alarms))
			}
			for _, m := range n.members {
				if m.GetIsLearner() || !answered[m.GetId()] {
					t.Errorf("open, and member %d is a learner or has not answered", m.GetId())
				}
			}
		}
	})
}

// FuzzTalosconfig reads a talosconfig. An error does not quote its key.
func FuzzTalosconfig(f *testing.F) {
	const key = "c2VjcmV0LWtleS1vZi10aGUtYWRtaW4="
	for _, seed := range []string{
		"context: blue\ncontexts:\n  blue:\n    endpoints: [192.0.2.2, 192.0.2.1, 192.0.2.2]\n" +
			"    ca: x\n    key: " + key + "\n",
		"context: blue\ncontexts:\n  blue:\n    nodes: [192.0.2.1]\n", "context: a\ncontexts: {a: null}\n",
		"contexts:\n  - key: " + key, "key: [" + key, "\x00", "---\n", "context: &a [*a]",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := newMachines(text, gate.Values{})
		if err != nil {
			if strings.Contains(err.Error(), key) && !strings.Contains(err.Error(), "no context") {
				t.Errorf("the key is shown: %v", err)
			}
			return
		}
		sorted := slices.Sorted(slices.Values(m.endpoints))
		if !slices.Equal(slices.Compact(sorted), m.endpoints) {
			t.Errorf("endpoints %q are not sorted and unique", m.endpoints)
		}
		again, err := newMachines(text, gate.Values{})
		if err != nil || !slices.Equal(again.endpoints, m.endpoints) {
			t.Errorf("endpoints %q, then %q (%v)", m.endpoints, again.endpoints, err)
		}
	})
}

// FuzzReleasePatches reads a machine's configuration. With its patches, the image has the release, and
// nothing else changes.
func FuzzReleasePatches(f *testing.F) {
	f.Add("registry.k8s.io/kube-apiserver:v1.35.2")
	f.Add("mirror.local:5000/kube-apiserver:v1.35.2-slim@sha256:00")
	f.Add("\"}, token: {a: \"")
	f.Fuzz(func(t *testing.T, image string) {
		text, err := yaml.Marshal(map[string]any{"version": "v1alpha1",
			"machine": map[string]any{"type": "worker", "token": "a"},
			"cluster": map[string]any{"apiServer": map[string]any{"image": image}}})
		if err != nil {
			t.Skip("no YAML has it")
		}
		before, err := readDocuments(text)
		if err != nil {
			t.Skip("no YAML has it")
		}
		patches, err := releasePatches(text, "v1.36.0", images[:1])
		if err != nil || len(patches) == 0 {
			return
		}
		patched, err := configpatcher.Apply(configpatcher.WithBytes(text), patches)
		if err != nil {
			return
		}
		out, err := patched.Bytes()
		if err != nil {
			return
		}
		after, err := readDocuments(out)
		if err != nil || !slices.Equal(differingParts("", before[""], after[""]), images[:1]) {
			t.Errorf("%q changes more than its image: %s, %v", image, out, err)
		}
		if again, err := releasePatches(out, "v1.36.0", images[:1]); err != nil || len(again) > 0 {
			t.Errorf("%q does not have the release: %s, %v", image, out, err)
		}
	})
}
