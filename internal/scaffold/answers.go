package scaffold

import (
	"fmt"
	"math"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// form parses an answer. The answers so far include those that the key needs.
type form = func(*answers, string) (any, error)

// matching is the form of a text that matches a pattern; what describes the form. Most commands need none of
// them, so the first use compiles a pattern.
func matching(pattern, what string) form {
	re := sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
	return func(_ *answers, s string) (any, error) {
		switch {
		case re().MatchString(s):
			return s, nil
		case strings.Contains(s, "@"): // it may contain a password
			return nil, fmt.Errorf("is not %s", what)
		}
		return nil, fmt.Errorf("%q is not %s", s, what)
	}
}

// nameForm is a DNS name in lower case.
var nameForm = regexp.MustCompile(`^([a-z0-9]([a-z0-9-]*[a-z0-9])?\.)+[a-z]([a-z0-9-]*[a-z0-9])?$`)

// The forms of texts.
var (
	wordForm = matching(`^\S+$`, "one word")
	// As Proxmox and the kernel allow them.
	storageForm = matching(`^[A-Za-z][A-Za-z0-9._-]*$`, "the id of a Proxmox storage, such as local-lvm")
	bridgeForm  = matching(`^[A-Za-z][A-Za-z0-9._-]{0,14}$`, "the name of a bridge, such as vmbr0")
	urlForm     = matching(`^https://[^/\s]+$`, "a https:// address without a path")
	slugForm    = matching(`^[a-z0-9][a-z0-9-]*$`, "lower-case letters, digits and hyphens")
	diskForm    = matching(`^/dev/[A-Za-z0-9/._:+-]+$`,
		"a disk such as /dev/sda, /dev/nvme0n1 or /dev/disk/by-id/…")
	endpointForm = matching(`^https://[^/\s@]+/?$`, "a https:// address without a path")
	hostForm     = matching(`^[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?$`,
		"a host name without a domain")
	locationForm   = matching(`^[a-z]{3}\d*$`, "a location, such as fsn1")
	serverTypeForm = matching(`^[a-z]+\d+$`, "a server type, such as cx33")
	cniForm        = matching(`^(flannel|cilium)$`, "flannel or cilium")
	storeForm      = matching(`^(infisical|vault|local)$`, "infisical, vault or local")
	projectForm    = matching(`^[0-9A-Za-z-]{8,}$`,
		"an id such as 8f3c1d52-6a0e-4b7f-9d21-5e4c7a90b6d3")
	gitForm = matching(`^(https?://[^/@\s]+|ssh://[^/@:\s]+@[^/@:\s]+(:\d+)?)/\S+$`,
		"a https:// address without credentials in it, or ssh://git@host/path")
	pathForm = matching(`^\./\S*$`, "a path that begins with ./")
)

func number(s string, least, most int) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < least || n > most {
		return 0, fmt.Errorf("%q is not a whole number from %d to %d", s, least, most)
	}
	return n, nil
}

func controlPlanesForm(_ *answers, s string) (any, error) {
	n, err := number(s, 1, 9)
	if err == nil && n%2 == 0 {
		err = fmt.Errorf("%d is even: etcd then tolerates no more failures than with %d", n, n-1)
	}
	return n, err
}

func workersForm(_ *answers, s string) (any, error) { return number(s, 0, 99) }

func anyForm(_ *answers, s string) (any, error) { return s, nil }

func networkForm(_ *answers, s string) (any, error) {
	p, err := netip.ParsePrefix(s)
	if err != nil || !p.Addr().Is4() || p.Bits() < 8 || p.Bits() > 29 {
		return nil, fmt.Errorf("%q is not an IPv4 network from /8 to /29, such as 192.168.1.0/24", s)
	}
	return p.Masked(), nil
}

// cloudNetworkForm is a network in which the template counts addresses: Hetzner Cloud has no smaller ones.
func cloudNetworkForm(a *answers, s string) (any, error) {
	p, err := netip.ParsePrefix(s)
	if err != nil || !p.Addr().Is4() || !p.Addr().IsPrivate() || p.Bits() != 24 || p != p.Masked() {
		return nil, fmt.Errorf("%q is not a private IPv4 network such as 10.0.1.0/24", s)
	}
	if owner := a.within(p); owner != "" {
		return nil, fmt.Errorf("%s has the address %s", p, owner)
	}
	return s, nil
}

func parseAddress(s string) (netip.Addr, error) {
	a, err := netip.ParseAddr(s)
	if err != nil || !a.Is4() {
		return netip.Addr{}, fmt.Errorf("%q is not an IPv4 address", s)
	}
	return a, nil
}

// address is the form of an address that check accepts.
func address(check func(*answers, netip.Addr) error) form {
	return func(a *answers, s string) (any, error) {
		address, err := parseAddress(s)
		if err != nil {
			return nil, err
		}
		return address, check(a, address)
	}
}

// vipForm is a free address, or the name of a load balancer instead of one.
func vipForm(a *answers, s string) (any, error) {
	if nameForm.MatchString(s) {
		return s, nil
	}
	return address((*answers).checkFree)(a, s)
}

func nodeAddressesForm(a *answers, s string) (any, error) {
	all, err := a.freeAddresses(s, a.machines())
	if err == nil && len(all) < a.machines() {
		err = fmt.Errorf("%q has %d, and %d machines need one each", s, len(all), a.machines())
	}
	return all, err
}

func poolsForm(a *answers, s string) (any, error) {
	_, err := a.freeAddresses(s, math.MaxInt)
	return entries(s), err
}

// freeAddresses returns the addresses in a list of ranges, at most a number of them; all must be free.
func (a *answers) freeAddresses(s string, most int) (all []netip.Addr, err error) {
	for _, entry := range entries(s) {
		first, end, err := parseRange(entry)
		if err != nil {
			return nil, err
		}
		for address := first; !end.Less(address) && len(all) < most; address = address.Next() {
			if err := a.checkFree(address); err != nil {
				return nil, err
			}
			all = append(all, address)
		}
	}
	return all, nil
}

func entries(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' })
}

// parseRange parses FIRST-LAST or one address.
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

func longhornDiskForm(a *answers, s string) (any, error) {
	if s == a.values["install_disk"] {
		return nil, fmt.Errorf("%s is the disk that Talos is installed on", s)
	}
	return diskForm(a, s)
}

func vmidForm(a *answers, s string) (any, error) {
	n, err := number(s, 100, 999_999_000)
	if err != nil {
		return nil, err
	}
	if other, ids, taken := a.idOwner(n, n+a.machines()-1); taken {
		return nil, fmt.Errorf("%d to %d: cluster %s reserves %d-%d", n, n+a.machines()-1, other, ids.First,
			ids.Last)
	}
	return n, nil
}
