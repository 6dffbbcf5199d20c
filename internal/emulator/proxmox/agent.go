package proxmox

import "strings"

// agent reports whether the guest agent is switched on in the configuration.
func (m *machine) agent() bool {
	for _, p := range parseProperties(m.options["agent"], "enabled") {
		if p.key == "enabled" {
			return p.value == "1"
		}
	}
	return false
}

func (s *Server) agentReady(c *call) (*machine, error) {
	m, err := s.guest(c, "VM.GuestAgent.Audit")
	switch {
	case err != nil:
		return nil, err
	case !m.agent():
		return nil, internal("No QEMU guest agent configured")
	case !m.running:
		return nil, internal("VM %d is not running", m.id)
	}
	return m, nil
}

func (s *Server) agentPing(c *call) (any, error) {
	if _, err := s.agentReady(c); err != nil {
		return nil, err
	}
	return map[string]any{"result": map[string]any{}}, nil
}

// agentInterfaces reports the address of ipconfig0 on the first card.
func (s *Server) agentInterfaces(c *call) (any, error) {
	m, err := s.agentReady(c)
	if err != nil {
		return nil, err
	}
	card := func(name, mac, address string, bits int) any {
		return map[string]any{"name": name, "hardware-address": mac, "ip-addresses": []any{
			map[string]any{"ip-address": address, "ip-address-type": "ipv4", "prefix": bits},
		}}
	}
	cards := []any{card("lo", "00:00:00:00:00:00", "127.0.0.1", 8)}
	if v := m.view(); v.Address.IsValid() {
		cards = append(cards, card("eth0", strings.ToLower(m.macOf("net0")), v.Address.Addr().String(), v.Address.Bits()))
	}
	return map[string]any{"result": cards}, nil
}
