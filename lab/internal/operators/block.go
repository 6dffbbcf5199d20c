package operators

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"net/netip"
	"strings"
)

// block is one CIDR of an address pool.
type block struct{ netip.Prefix }

// parseBlocks reads a CIDR or a range of IPv4 addresses; a range becomes the
// CIDRs that make it up.
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
	if err != nil || !first.Is4() {
		return nil, fmt.Errorf("invalid IP range %q: invalid start IP %q", text, strings.TrimSpace(from))
	}
	last, err := netip.ParseAddr(strings.TrimSpace(to))
	if err != nil || !last.Is4() {
		return nil, fmt.Errorf("invalid IP range %q: invalid end IP %q", text, strings.TrimSpace(to))
	}
	if last.Less(first) {
		return nil, fmt.Errorf("invalid IP range %q: start IP %q is after the end IP %q", text, first, last)
	}
	var blocks []block
	next, end := uint64(number(first)), uint64(number(last))
	for next <= end {
		// The largest block that begins here and does not reach beyond the end.
		size := 32
		if next != 0 {
			size = min(size, bits.TrailingZeros64(next))
		}
		for uint64(1)<<size > end-next+1 {
			size--
		}
		blocks = append(blocks, block{netip.PrefixFrom(address(uint32(next)), 32-size)})
		next += uint64(1) << size
	}
	return blocks, nil
}

func number(a netip.Addr) uint32 {
	four := a.As4()
	return binary.BigEndian.Uint32(four[:])
}

func address(n uint32) netip.Addr {
	var four [4]byte
	binary.BigEndian.PutUint32(four[:], n)
	return netip.AddrFrom4(four)
}
