package platform

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ephemeral-castle/castle/internal/secret"
)

// Fact is how a machine of a state is in the datacenter now.
type Fact struct {
	Key    string            `json:"machine"` // of its resource instance: worker-01
	Called string            `json:"-"`       // in the platform's words: VM 421
	Where  string            `json:"-"`       // likewise: on node pve1
	ID     int               `json:"vmid"`
	Node   string            `json:"node,omitempty"` // where it is
	Status string            `json:"status"`         // running, stopped, absent or unknown
	UUID   string            `json:"uuid,omitempty"`
	Disks  map[string]string `json:"disks,omitempty"` // volumes, by interface
	Cards  map[string]string `json:"cards,omitempty"` // hardware addresses, by interface
	// Network is that of the machine's address, and VLAN what its card is in there, or none.
	Network, VLAN string `json:"-"`
	// Pending lists the changes that wait until the machine is stopped and started: memory 4096 → 8192.
	Pending []string `json:"pending,omitempty"`
	// ByRollout: if it is stopped, a create does not start it, and a rollout does.
	ByRollout bool `json:"-"`
	// Differs lists what is not as castle has left it: has moved from node pve1 to node pve2.
	Differs []string `json:"differs,omitempty"`
}

// Differ adds to Differs.
func (f *Fact) Differ(format string, args ...any) {
	f.Differs = append(f.Differs, fmt.Sprintf(format, args...))
}

// Compare adds to Differs where the disks and the hardware addresses are others than those that castle has
// left; none are those of a state that has none.
func (f *Fact) Compare(disks map[string]string, cards []string) {
	differs := f.Differ
	for _, name := range slices.Sorted(maps.Keys(disks)) {
		switch is := f.Disks[name]; is {
		case disks[name]:
		case "":
			differs("has lost its disk %s (%s)", name, disks[name])
		default:
			differs("has the disk %s as %s, and castle has made %s there", is, name, disks[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f.Disks)) {
		if len(disks) > 0 && disks[name] == "" {
			differs("has a disk that castle has not made: %s (%s)", name, f.Disks[name])
		}
	}
	has := func(all []string, mac string) bool {
		return slices.ContainsFunc(all, func(x string) bool { return strings.EqualFold(x, mac) })
	}
	for _, name := range slices.Sorted(maps.Keys(f.Cards)) {
		if len(cards) > 0 && !has(cards, f.Cards[name]) {
			differs("has a network card that castle has not made: %s (%s)", name, f.Cards[name])
		}
	}
	for _, mac := range cards {
		if !has(slices.Collect(maps.Values(f.Cards)), mac) {
			differs("has lost its network card %s", mac)
		}
	}
}

// Apart adds to Differs where a card is in another VLAN than most cards of the same network.
func Apart(all []Fact) []Fact {
	cards := map[string]map[string]int{} // by network and VLAN
	for _, f := range all {
		if cards[f.Network] == nil {
			cards[f.Network] = map[string]int{}
		}
		cards[f.Network][f.VLAN]++
	}
	for i := range all {
		f := &all[i]
		for _, vlan := range slices.Sorted(maps.Keys(cards[f.Network])) {
			if most := cards[f.Network]; vlan != f.VLAN && most[vlan] >= most[f.VLAN] {
				f.Differ("is on VLAN %s, and other machines of %s are on VLAN %s: they do not reach each "+
					"other", f.VLAN, f.Network, vlan)
				break
			}
		}
	}
	return all
}

// Mask hides secrets in every text.
func (f *Fact) Mask(hide func(string) string) {
	f.Key, f.Called, f.Node, f.Where = hide(f.Key), hide(f.Called), hide(f.Node), hide(f.Where)
	f.Status, f.UUID = hide(f.Status), hide(f.UUID)
	f.Network, f.VLAN = hide(f.Network), hide(f.VLAN)
	secret.HideAll(hide, f.Differs, f.Pending)
	for _, all := range []map[string]string{f.Disks, f.Cards} {
		for option, text := range all {
			all[option] = hide(text)
		}
	}
}

// Lines describe what is not as castle has left the machine, and what waits for its restart, by create.
func (f Fact) Lines(create string) (lines []string) {
	name := fmt.Sprintf("%s (%s) ", f.Key, f.Called)
	for _, text := range f.Differs {
		lines = append(lines, name+text)
	}
	if len(f.Pending) > 0 {
		lines = append(lines, fmt.Sprintf("%sneeds a restart: %s; castle rollout drains it, stops and "+
			"starts it: a reboot inside it does not apply this", name, strings.Join(f.Pending, ", ")))
	}
	if f.ByRollout {
		create = strings.Replace(create, " create ", " rollout ", 1)
	}
	if f.Status == "stopped" {
		lines = append(lines, fmt.Sprintf("%sis stopped %s; %s starts it", name, f.Where, create))
	}
	return lines
}
