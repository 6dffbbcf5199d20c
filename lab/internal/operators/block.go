package operators

import (
	"fmt"
	"net/netip"
	"strings"
)

// block is one CIDR of an address pool.
type block struct{ netip.Prefix }

// parseBlocks reads a CIDR or a range of addresses; a range becomes the CIDRs that make it up.
func parseBlocks(text string) ([]block, error) {
	from, to, isRange := strings.Cut(text, "-")
	if !isRange {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("invalid CIDR %q", text)
		}
		return []block{{p.Masked()}}, nil
	}
	first, err := netip.ParseAddr(strings.TrimSpace(from))
	if err != nil {
		return nil, fmt.Errorf("invalid IP range %q: invalid start IP %q", text, strings.TrimSpace(from))
	}
	last, err := netip.ParseAddr(strings.TrimSpace(to))
	if err != nil || first.Is4() != last.Is4() {
		return nil, fmt.Errorf("invalid IP range %q: invalid end IP %q", text, strings.TrimSpace(to))
	}
	if last.Less(first) {
		return nil, fmt.Errorf("invalid IP range %q: start IP %q is after the end IP %q", text, first, last)
	}
	var blocks []block
	for next := first; next.IsValid() && !last.Less(next); next = blocks[len(blocks)-1].end().Next() {
		// The largest block that begins here and does not reach beyond the end.
		b := block{netip.PrefixFrom(next, next.BitLen())}
		for b.Bits() > 0 {
			larger := block{netip.PrefixFrom(next, b.Bits()-1)}
			if larger.Masked().Addr() != next || last.Less(larger.end()) {
				break
			}
			b = larger
		}
		blocks = append(blocks, b)
	}
	return blocks, nil
}

// end is the last address of a block.
func (b block) end() netip.Addr {
	bytes := b.Addr().AsSlice()
	for bit := b.Bits(); bit < b.Addr().BitLen(); bit++ {
		bytes[bit/8] |= 0x80 >> (bit % 8)
	}
	a, _ := netip.AddrFromSlice(bytes)
	return a
}
