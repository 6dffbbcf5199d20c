package scaffold

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ephemeral-castle/castle/internal/check"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/templates"
)

// newCluster begins a cluster in a repository whose other clusters have the given reservations.
func newCluster(t *testing.T, others ...check.Reservations) *NewCluster {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "clusters"), 0o700); err != nil {
		t.Fatal(err)
	}
	o, err := Begin(config.Options{Repository: dir, Templates: templates.Files}, "green", "proxmox-talos")
	if err != nil {
		t.Fatal(err)
	}
	o.answers.others = others
	return o
}

// answerAll answers every key: as given, else as proposed.
func answerAll(t *testing.T, o *NewCluster, given map[string]string) map[string]string {
	t.Helper()
	answered := map[string]string{}
	for _, k := range o.keys {
		if !o.uses(k) {
			continue
		}
		text, is := given[k.name]
		if !is {
			text = o.propose(k)
		}
		if err := o.answer(k, text); err != nil {
			t.Errorf("%v", err)
		}
		answered[k.name] = text
	}
	return answered
}

func given(network, gateway string) map[string]string {
	return map[string]string{
		"proxmox_endpoint": "https://192.0.2.2:8006", "proxmox_node": "pve", "network": network,
		"gateway":        gateway,
		"control_planes": "1", "workers": "2", "infisical_project_id": "12345678",
		"infisical_project_slug": "x", "git_url": "https://git.example.com/x",
	}
}

func reserve(what, first, last string) check.AddressRange {
	return check.AddressRange{What: what, First: netip.MustParseAddr(first), Last: netip.MustParseAddr(last)}
}

func TestProposalsUseFreeAddressesAndIDs(t *testing.T) {
	for _, c := range []struct {
		name, network, gateway string
		others                 []check.AddressRange
		ids                    []check.IDRange
		want                   string
	}{
		{"an empty network", "192.0.2.0/24", "192.0.2.1", nil, nil,
			"192.0.2.240 192.0.2.241-192.0.2.243 192.0.2.244-192.0.2.253 401"},
		{"the end is taken", "192.0.2.0/24", "192.0.2.254",
			[]check.AddressRange{reserve("a pool", "192.0.2.230", "192.0.2.249")},
			[]check.IDRange{{First: 395, Last: 405}},
			"192.0.2.210 192.0.2.211-192.0.2.213 192.0.2.214-192.0.2.223 411"},
		{"no room for a block", "192.0.2.0/28", "192.0.2.1",
			[]check.AddressRange{reserve("a node", "192.0.2.7", "192.0.2.7")}, nil,
			"192.0.2.10 192.0.2.11-192.0.2.13 192.0.2.3-192.0.2.4 401"},
		{"a wide network", "10.0.0.0/8", "10.0.0.1", nil, nil,
			"10.255.255.240 10.255.255.241-10.255.255.243 10.255.255.244-10.255.255.253 401"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := newCluster(t, check.Reservations{Cluster: "blue/proxmox", Addresses: c.others, VMIDs: c.ids})
			answered := answerAll(t, o, given(c.network, c.gateway))
			if got := strings.Join([]string{answered["vip"], answered["node_addresses"],
				answered["pool_addresses"], answered["vmid_start"]}, " "); got != c.want {
				t.Errorf("proposed %s, want %s", got, c.want)
			}
		})
	}
}

func TestFullNetworkHasNoProposal(t *testing.T) {
	o := newCluster(t, check.Reservations{Cluster: "blue/proxmox",
		Addresses: []check.AddressRange{reserve("the pool", "192.0.2.2", "192.0.2.254")}})
	answers := given("192.0.2.0/24", "192.0.2.1")
	for _, k := range o.keys {
		if k.name == "vip" {
			if p := o.propose(k); p != "" {
				t.Errorf("proposed %s of another cluster", p)
			}
			if err := o.answer(k, "192.0.2.9"); err == nil ||
				!strings.Contains(err.Error(), "that of the pool of cluster blue/proxmox") {
				t.Errorf("taken: %v", err)
			}
			return
		}
		text, is := answers[k.name]
		if !is {
			text = o.propose(k)
		}
		if err := o.answer(k, text); err != nil {
			t.Fatal(err)
		}
	}
}

// The room to grow ends where another cluster begins.
func TestIDRangeEndsBeforeTheNextCluster(t *testing.T) {
	o := newCluster(t, check.Reservations{Cluster: "blue/proxmox",
		VMIDs: []check.IDRange{{First: 505, Last: 510}}})
	answers := given("192.0.2.0/24", "192.0.2.1")
	answers["vmid_start"] = "500"
	answerAll(t, o, answers)
	if got := o.answers.ids(); got != (check.IDRange{First: 500, Last: 504}) {
		t.Errorf("reserves %v", got)
	}
}

func TestCloseRemovesTheDraftOnly(t *testing.T) {
	o := newCluster(t)
	other := filepath.Join(o.repository, "clusters", "blue")
	if err := os.Mkdir(other, 0o700); err != nil {
		t.Fatal(err)
	}
	answerAll(t, o, given("192.0.2.0/24", "192.0.2.1"))
	d, err := o.Write()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(o.repository); err != nil || len(entries) != 1 {
		t.Errorf("left: %v, %v", entries, err)
	}
	if _, err := os.Stat(other); err != nil {
		t.Error(err)
	}
}

func TestQuestionsFitATerminalOf80Columns(t *testing.T) {
	const number, proposal = len("10/19  "), len(" [192.168.1.231-192.168.1.235]")
	for _, k := range allKeys() {
		if k.form == nil || k.quiet {
			continue
		}
		if k.why == "" || number+len(k.why) > 80 {
			t.Errorf("%s: %q: want a line of at most %d columns", k.name, k.why, 80-number)
		}
		if len(k.needs) > 1 && number+len(k.question)+proposal > 80 {
			t.Errorf("%s: %q has no room for a proposal", k.name, k.question)
		}
		if k.proposal == nil && number+len(k.question+k.more) > 80 {
			t.Errorf("%s: %q is too long", k.name, k.question+k.more)
		}
	}
}
