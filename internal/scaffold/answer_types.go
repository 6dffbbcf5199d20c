package scaffold

import (
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
)

// matching is the form of a text; what says it in words.
func matching(pattern, what string) func(*Order, string) (any, error) {
	re := regexp.MustCompile(pattern)
	return func(_ *Order, s string) (any, error) {
		if !re.MatchString(s) {
			if strings.Contains(s, "@") { // there may be a password before it
				return nil, fmt.Errorf("is not %s", what)
			}
			return nil, fmt.Errorf("%q is not %s", s, what)
		}
		return s, nil
	}
}

func word(o *Order, s string) (any, error) { return matching(`^\S+$`, "one word")(o, s) }

func number(s string, least, most int) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < least || n > most {
		return 0, fmt.Errorf("%q is not a whole number from %d to %d", s, least, most)
	}
	return n, nil
}

func controlPlanesForm(_ *Order, s string) (any, error) {
	n, err := number(s, 1, 9)
	if err == nil && n%2 == 0 {
		err = fmt.Errorf("%d is even: etcd then stands no more failures than with %d", n, n-1)
	}
	return n, err
}

func workersForm(_ *Order, s string) (any, error) { return number(s, 1, 99) }

func networkForm(_ *Order, s string) (any, error) {
	p, err := netip.ParsePrefix(s)
	if err != nil || !p.Addr().Is4() || p.Bits() < 8 || p.Bits() > 29 {
		return nil, fmt.Errorf("%q is not an IPv4 network from /8 to /29, such as 192.168.1.0/24", s)
	}
	return p.Masked(), nil
}

func addressForm(_ *Order, s string) (any, error) { return parseAddress(s) }

func parseAddress(s string) (netip.Addr, error) {
	a, err := netip.ParseAddr(s)
	if err != nil || !a.Is4() {
		return netip.Addr{}, fmt.Errorf("%q is not an IPv4 address", s)
	}
	return a, nil
}

func gatewayForm(o *Order, s string) (any, error) {
	a, err := parseAddress(s)
	if err != nil {
		return nil, err
	}
	return a, o.usable(a)
}

// usable says why an address is none that a machine of the network can have.
func (o *Order) usable(a netip.Addr) error {
	network := o.network()
	switch {
	case !network.Contains(a):
		return fmt.Errorf("%s is not in the network %s", a, network)
	case a == network.Addr() || a == last(network):
		return fmt.Errorf("%s is the network's own or its broadcast address", a)
	}
	return nil
}

func vipForm(o *Order, s string) (any, error) {
	a, err := parseAddress(s)
	if err != nil {
		return nil, err
	}
	return a, o.available(a, "vip", "node_addresses", "metallb_addresses")
}

func nodeAddressesForm(o *Order, s string) (any, error) {
	var all []netip.Addr
	for _, entry := range entries(s) {
		first, end, err := parseRange(entry)
		if err != nil {
			return nil, err
		}
		for a := first; a.Compare(end) <= 0 && len(all) < o.machines(); a = a.Next() {
			if err := o.available(a, "node_addresses", "metallb_addresses"); err != nil {
				return nil, err
			}
			all = append(all, a)
		}
	}
	if len(all) < o.machines() {
		return nil, fmt.Errorf("%q holds %d, and %d machines need one each", s, len(all), o.machines())
	}
	return all, nil
}

// Pools are ranges of addresses: "192.168.1.240-192.168.1.249".
type Pools []string

// First is the first address of all.
func (p Pools) First() string {
	first, _, _ := parseRange(p[0]) //nolint:errcheck // the form has read it
	return first.String()
}

func poolsForm(o *Order, s string) (any, error) {
	pools := Pools(entries(s))
	for _, entry := range pools {
		first, end, err := parseRange(entry)
		if err != nil {
			return nil, err
		}
		if !o.network().Contains(end) {
			return nil, fmt.Errorf("%s is not in the network %s", end, o.network())
		}
		for a := first; a.Compare(end) <= 0; a = a.Next() {
			if err := o.available(a, "metallb_addresses"); err != nil {
				return nil, err
			}
		}
	}
	return pools, nil
}

func entries(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' })
}

// parseRange reads FIRST-LAST or one address.
func parseRange(entry string) (first, end netip.Addr, err error) {
	from, to, is := strings.Cut(entry, "-")
	if !is {
		to = from
	}
	if first, err = parseAddress(from); err == nil {
		end, err = parseAddress(to)
	}
	if err != nil {
		return first, end, fmt.Errorf("%q is neither FIRST-LAST nor an IPv4 address", entry)
	}
	if end.Less(first) {
		return first, end, fmt.Errorf("%q ends before it begins", entry)
	}
	return first, end, nil
}

func diskForm(o *Order, s string) (any, error) {
	return matching(`^/dev/[A-Za-z0-9/._:+-]+$`, "a disk such as /dev/sda, /dev/nvme0n1 or /dev/disk/by-id/…")(o, s)
}

func longhornDiskForm(o *Order, s string) (any, error) {
	if s == o.values["install_disk"] {
		return nil, fmt.Errorf("%s is the disk that Talos is installed on", s)
	}
	return diskForm(o, s)
}

func vmidForm(o *Order, s string) (any, error) {
	n, err := number(s, 100, 999_999_000)
	if err != nil {
		return nil, err
	}
	if other, ids, is := o.idTaken(n, n+o.machines()-1); is {
		return nil, fmt.Errorf("%d to %d: cluster %s claims %d-%d", n, n+o.machines()-1, other, ids.First, ids.Last)
	}
	return n, nil
}
