package talos

import (
	"testing"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// sees is the view of the voter with that id, which follows leader and lists ids.
func sees(id, leader uint64, ids ...uint64) nodeView {
	v := nodeView{
		endpoint: string(rune('a' + id - 1)),
		status:   &machineapi.EtcdMemberStatus{MemberId: id, Leader: leader},
	}
	for _, other := range ids {
		v.members = append(v.members, &machineapi.EtcdMember{Id: other,
			Hostname: "cp-" + string(rune('0'+other))})
	}
	return v
}

func TestCheckQuorumReportsWhatIsMissing(t *testing.T) {
	corrupt := sees(1, 1, 1)
	corrupt.status.Errors = []string{"etcdserver: corrupt cluster"}
	starting := sees(1, 1, 1)
	starting.members = append(starting.members, &machineapi.EtcdMember{Id: 2, IsLearner: true,
		PeerUrls: []string{"https://10.0.0.2:2380"}})
	for want, c := range map[string]struct {
		voters int
		views  []nodeView
	}{
		"": {2, []nodeView{sees(1, 1, 1, 2), sees(2, 1, 1, 2)}},
		"etcd: 2 of 2 voters; leaders differ: a follows cp-1, but b follows cp-2": {2,
			[]nodeView{sees(1, 1, 1, 2), sees(2, 2, 1, 2)}},
		"etcd: 1 of 2 voters; members differ: a lists cp-1, but b lists cp-2; leaders differ: a follows " +
			"cp-1, but b follows cp-2": {2, []nodeView{sees(1, 1, 1), sees(2, 2, 2)}},
		"etcd: 2 of 2 voters; b: no leader": {2,
			[]nodeView{sees(1, 1, 1, 2), sees(2, 0, 1, 2)}},
		"etcd: 1 of 1 voters; a: etcdserver: corrupt cluster": {1, []nodeView{corrupt}},
		"etcd: 1 of 2 voters, 1 learner (10.0.0.2, not started); b, c: etcd does not run yet": {2, []nodeView{
			starting,
			{endpoint: "b", problem: &problem{endpoint: "b", reason: "etcd does not run yet"}},
			{endpoint: "c", problem: &problem{endpoint: "c", reason: "etcd does not run yet"}},
		}},
	} {
		err := quorum(c.voters, c.views)
		switch {
		case want == "" && err != nil:
			t.Errorf("whole, but: %v", err)
		case want != "" && (err == nil || err.Error() != want):
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}

func TestCheckQuorumMarksThatEtcdRunsNowhere(t *testing.T) {
	down := func(endpoint string) nodeView {
		return nodeView{endpoint: endpoint, problem: &problem{endpoint: endpoint, kind: etcdDown}}
	}
	refused := nodeView{endpoint: "b", problem: &problem{endpoint: "b", reason: "connection refused"}}
	for name, c := range map[string]struct {
		views []nodeView
		want  gate.Kind
	}{
		"all answer, none runs it": {[]nodeView{down("a"), down("b")}, gate.EtcdDown},
		"one does not answer":      {[]nodeView{down("a"), refused}, ""},
		"one runs it":              {[]nodeView{sees(1, 1, 1), down("b")}, ""},
	} {
		if err := quorum(3, c.views); gate.KindOf(err) != c.want {
			t.Errorf("%s: got kind %q of %v, want %q", name, gate.KindOf(err), err, c.want)
		}
	}
}
