package proxmox

import (
	"strings"
	"testing"

	"github.com/ephemeral-castle/castle/internal/platform"
	"github.com/ephemeral-castle/castle/internal/platform/proxmox/values"
)

func TestParseRange(t *testing.T) {
	for _, test := range []struct{ text, want, wrong string }{
		{"421-432", "421-432", ""},
		{"421", "421", ""},
		{"421-421", "421", ""},
		{"432-421", "", "ends before it begins"},
		{"99-105", "", "go from 100"},
		{"421-1000000000", "", "go from 100"},
		{"100-999", "", "900 ids"},
		{"421-", "", "not a range"},
		{"-421", "", "not a range"},
		{"421..432", "", "not a range"},
		{"421-432-440", "", "not a range"},
		{"", "", "not a range"},
	} {
		r, err := platform.ParseRange(test.text)
		if test.wrong != "" {
			if err == nil || !strings.Contains(err.Error(), test.wrong) {
				t.Errorf("%q: %v, want %q", test.text, err, test.wrong)
			}
			continue
		}
		if err != nil || r.String() != test.want {
			t.Errorf("%q is %s, %v", test.text, r, err)
		}
	}
}

// machine is castle's own machine of the cluster blue, changed by a test.
func machine(change func(*Guest)) Guest {
	s := Guest{
		ID: 421, Kind: "qemu", Node: "proxmox", Name: "blue-cp-01", Status: "running",
		Config: Config{
			"name": "blue-cp-01", "tags": "blue;castle", "scsi0": "local-lvm:vm-421-disk-0,size=20G",
			"protection": "0", "template": "0", "smbios1": "uuid=1", "ide2": "none,media=cdrom",
		},
	}
	if change != nil {
		change(&s)
	}
	return s
}

func TestRefusalsSpareOnlyCastlesOwnMachines(t *testing.T) {
	set := func(key, value string) func(*Guest) { return func(s *Guest) { s.Config[key] = value } }
	called := func(name string) func(*Guest) { return func(s *Guest) { s.Name = name } }
	for name, test := range map[string]struct {
		change  func(*Guest)
		cluster string
		foreign []int
		want    string // why it stays; it goes, if empty
	}{
		"castle's own":                    {},
		"castle's own, cluster named":     {cluster: "blue"},
		"tags in another order and case":  {change: set("tags", "Castle,BLUE")},
		"another cluster's":               {cluster: "green", want: "not tagged green"},
		"outside the range":               {change: func(s *Guest) { s.ID = 433 }, want: "outside the range"},
		"no tags":                         {change: set("tags", ""), want: "not tagged castle"},
		"the cluster's tag alone":         {change: set("tags", "blue"), want: "not tagged castle"},
		"castle's tag alone":              {change: set("tags", "castle"), want: "neither named"},
		"somebody's name":                 {change: called("prod-database"), want: "neither named"},
		"a name that only begins like it": {change: called("bluebird-01"), want: "neither named"},
		"named after castle, no cluster":  {change: called("castle-01"), want: "neither named"},
		"named after another of " +
			"its tags": {change: func(s *Guest) { s.Name = "prod-db"; s.Config["tags"] = "blue;castle;prod" },
			cluster: "blue", want: "neither named"},
		"any name, in castle's pool": {change: func(s *Guest) { s.Name = "x"; s.Pool = "castle" }},
		"in castle's pool " +
			"without a tag": {change: func(s *Guest) { s.Pool = "castle"; s.Config["tags"] = "" },
			want: "not tagged castle"},
		"in another pool": {change: func(s *Guest) { s.Name = "x"; s.Pool = "prod" },
			want: "neither named"},

		"of a cluster called castle": {change: func(s *Guest) {
			s.Name, s.Config["tags"] = "castle-cp-01", "castle"
		}, cluster: "castle"},
		"of another cluster, in castle's pool": {change: func(s *Guest) { s.Pool = "castle" },
			cluster: "castle", want: "neither named"},
		"of the cluster castle-blue": {change: func(s *Guest) {
			s.Name, s.Config["tags"], s.Pool = "castle-blue-cp-01", "castle;castle-blue", "castle"
		}, cluster: "castle", want: "neither named"},
		"of the cluster castle-blue, which is meant": {change: func(s *Guest) {
			s.Name, s.Config["tags"] = "castle-blue-cp-01", "castle;castle-blue"
		}, cluster: "castle-blue"},

		"protected":        {change: set("protection", "1"), want: "protected"},
		"a template":       {change: set("template", "1"), want: "a template"},
		"locked":           {change: set("lock", "backup"), want: "locked (backup)"},
		"being created":    {change: set("lock", "create"), want: "locked (create)"},
		"highly available": {change: func(s *Guest) { s.HA = true }, want: "high availability"},
		"replicated":       {change: func(s *Guest) { s.Replicated = true }, want: "replicated"},
		"a linked clone on ZFS": {change: set("scsi0", "zfs:base-9000-disk-0/vm-421-disk-0,size=8G"),
			want: "linked clone"},
		"a linked clone in a file": {change: set("scsi0",
			"local:9000/base-9000-disk-0.qcow2/421/vm-421-disk-0.qcow2"), want: "linked clone"},
		"a base of linked clones": {change: set("virtio1", "local-lvm:base-421-disk-0"),
			want: "linked clone"},
		"a base that is not in use": {change: set("unused0", "local-lvm:base-421-disk-1"),
			want: "linked clone"},
		"a container": {change: func(s *Guest) { s.Kind = "lxc" }, want: "a container"},
		"invisible":   {change: func(s *Guest) { s.Hidden = true }, want: "may not see it"},
		"on a node that is off": {change: func(s *Guest) { s.Unreadable = "node pve2 does not answer" },
			want: "pve2"},

		"foreign and named": {change: set("tags", ""), foreign: []int{421}},
		"foreign, another is named": {change: set("tags", ""), foreign: []int{422},
			want: "not tagged castle"},
		"foreign of another cluster": {cluster: "green", foreign: []int{421}},
		"named, but protected": {change: set("protection", "1"), foreign: []int{421},
			want: "protected"},
		"named, but a template": {change: set("template", "1"), foreign: []int{421},
			want: "a template"},
		"named, but locked": {change: set("lock", "backup"), foreign: []int{421},
			want: "locked (backup)"},
		"named, but highly available": {change: func(s *Guest) { s.HA = true }, foreign: []int{421},
			want: "high availability"},
		"named, but replicated": {change: func(s *Guest) { s.Replicated = true }, foreign: []int{421},
			want: "replicated"},
		"named, but a linked clone": {change: set("scsi0", "zfs:base-9-disk-0/vm-421-disk-0"),
			foreign: []int{421}, want: "linked clone"},
		"named, but a container": {change: func(s *Guest) { s.Kind = "lxc" }, foreign: []int{421},
			want: "a container"},
		"named, but invisible": {change: func(s *Guest) { s.Hidden = true }, foreign: []int{421},
			want: "may not see it"},
		"named, but out of the range": {change: func(s *Guest) { s.ID = 433 }, foreign: []int{433},
			want: "outside the range"},
		"named, but its node is off": {change: func(s *Guest) { s.Unreadable = "node pve2 does not answer" },
			foreign: []int{421}, want: "pve2"},
	} {
		t.Run(name, func(t *testing.T) {
			o := Ownership{Range: platform.Range{From: 421, To: 432}, Cluster: test.cluster,
				Foreign: test.foreign}
			got := strings.Join(o.Refusals(machine(test.change)), "; ")
			if (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
				t.Errorf("refused because %q, want %q", got, test.want)
			}
		})
	}
}

// Signs prove nothing where a record or a key tells more.
func TestRecordsAndKeysContradictTheMarks(t *testing.T) {
	derived := values.UUIDOf("our key", "blue-cp-01")
	recorded := func(cluster, uuid string) []platform.RecordedMachine {
		return []platform.RecordedMachine{{Cluster: cluster, Machine: platform.Object{Kind: platform.Machine,
			VM: 421, UUID: uuid}}}
	}
	const another, greens = "knows this id as another machine", "recorded as a machine of green/proxmox"
	const underived = "does not derive from the key that is recorded of blue"
	keys := map[string]string{"blue": "our key"}
	for name, test := range map[string]struct {
		uuid  string
		owner Ownership
		want  string // why it stays; it goes, if empty
		vouch string // why it stays though it was named as foreign
	}{
		"made by the key": {derived, Ownership{Keys: keys}, "", ""},
		"beside a cluster called castle": {derived,
			Ownership{Keys: map[string]string{"blue": "our key", "castle": "theirs"}}, "", ""},
		"made by another":  {"theirs", Ownership{Keys: keys}, underived, ""},
		"without any uuid": {"", Ownership{Keys: keys}, underived, ""},
		"recorded, and made by another key": {"u1",
			Ownership{Keys: keys, Known: recorded("blue/proxmox", "u1")}, "", ""},
		"recorded as another machine": {derived,
			Ownership{Keys: keys, Known: recorded("blue/proxmox", "u1")}, another, ""},
		"one record has it, and another one knows the id": {"u1", Ownership{
			Known: append(recorded("blue/proxmox", "u1"), recorded("green/proxmox", "u2")...)}, "", ""},
		"another cluster records it": {"u1",
			Ownership{Cluster: "blue", Known: recorded("green/proxmox", "u1")}, greens, greens},
		"a cluster records it that it is not tagged with": {"u1",
			Ownership{Known: recorded("green/proxmox", "u1")}, greens, greens},
	} {
		test.owner.Range = platform.Range{From: 421, To: 421}
		g := machine(func(g *Guest) { g.Config["smbios1"] = "uuid=" + test.uuid })
		got := strings.Join(test.owner.Refusals(g), "; ")
		if (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
			t.Errorf("%s: refused because %q, want %q", name, got, test.want)
		}
		test.owner.Foreign = []int{421}
		if got := strings.Join(test.owner.Refusals(g), "; "); got != test.vouch {
			t.Errorf("%s, named as foreign: refused because %q, want %q", name, got, test.vouch)
		}
	}
}

func TestRefusalsListsEveryReason(t *testing.T) {
	s := machine(func(s *Guest) {
		s.Config["tags"], s.Config["protection"], s.Config["lock"] = "", "1",
			"backup"
	})
	got := strings.Join(Ownership{Range: platform.Range{From: 421, To: 421}}.Refusals(s), "; ")
	if want := "not tagged castle; protected; locked (backup)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
