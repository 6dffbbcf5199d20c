package talos

import (
	"net"
	"slices"

	networkpb "github.com/siderolabs/talos/pkg/machinery/api/resource/definitions/network"
	"github.com/siderolabs/talos/pkg/machinery/cel/celenv"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/nethelpers"
	"github.com/siderolabs/talos/pkg/machinery/proto"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
)

// Card is a network card as Talos finds it.
type Card struct {
	Names   []string // ens18, enp6s18: the first is the link's, the others are further names of it
	MAC     string
	Driver  string // virtio_net
	BusPath string // 0000:06:12.0
}

// cards are those of a machine; none if it has one that every name and selector finds.
func (m *machine) cards() []Card {
	if len(m.spec.Cards) == 0 && len(m.spec.Links) > 0 {
		return []Card{{Names: m.spec.Links}}
	}
	return m.spec.Cards
}

// status is the card's resource.
func (c Card) status() network.LinkStatusSpec {
	spec := network.LinkStatusSpec{Type: nethelpers.LinkEther, Driver: c.Driver, BusPath: c.BusPath}
	if mac, err := net.ParseMAC(c.MAC); err == nil {
		spec.HardwareAddr, spec.PermanentAddr = nethelpers.HardwareAddr(mac), nethelpers.HardwareAddr(mac)
	}
	if len(c.Names) > 1 {
		spec.AltNames = c.Names[1:]
	}
	return spec
}

// reaches reports whether a link of a configuration is the machine's first card, in whose network its virtual
// addresses are. Talos gives an alias to no card if its selector finds several
// (internal/app/machined/pkg/controllers/network/link_alias_config.go).
func (m *machine) reaches(c config.Provider, link string) bool {
	cards := m.cards()
	if len(cards) == 0 || link == "" || slices.Contains(cards[0].Names, link) {
		return true
	}
	for _, alias := range c.NetworkLinkAliasConfigs() {
		if alias.Name() != link {
			continue
		}
		var found []int
		for i, card := range cards {
			var spec networkpb.LinkStatusSpec
			status := network.NewLinkStatus(network.NamespaceName, card.Names[0])
			*status.TypedSpec() = card.status()
			if err := proto.ResourceSpecToProto(status, &spec); err != nil {
				return false
			}
			selector := alias.LinkSelector()
			is, err := selector.EvalBool(celenv.LinkLocator(), map[string]any{"link": &spec})
			if err == nil && is {
				found = append(found, i)
			}
		}
		return slices.Equal(found, []int{0})
	}
	return false
}
