// Package network collects from a configuration the contents of the lab's own Internet: every
// address, range and host name that occurs in any value.
//
// It does not interpret a value. An extra address that refuses connections does no harm, and a
// missing one would cause a packet to leave the lab. So the package collects everything that has
// the form of an address or a name, at any place in a text.
package network

import (
	"maps"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// widest is the shortest prefix that counts as a network of the user's own. Shorter ones are
// 0.0.0.0/0 and the like.
const widest = 16

// Names are the addresses, networks and hosts in a configuration.
type Names struct {
	Addresses []netip.Addr
	Ranges    []netip.Prefix // pools and networks, in as few prefixes as they need
	Hosts     []string
	Endpoints []Endpoint // where URLs lead
}

// Endpoint is an address that clients will call.
type Endpoint struct {
	Host string // a name or an address
	Port uint16
	TLS  bool
	SSH  bool
}

// Private returns the networks of private addresses. A configuration that is edited may name any of them.
func Private() []netip.Prefix {
	var all []netip.Prefix
	for _, p := range []string{"10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12", "192.168.0.0/16",
		"fd00::/8"} {
		all = append(all, netip.MustParsePrefix(p))
	}
	return all
}

// String is the endpoint as host:port.
func (e Endpoint) String() string { return net.JoinHostPort(e.Host, strconv.Itoa(int(e.Port))) }

const (
	quad = `\d{1,3}(?:\.\d{1,3}){3}`
	// six matches what may be an address or a network of IPv6; times and MAC addresses are no such ones.
	six    = `[0-9a-fA-F]*:[0-9a-fA-F:]*:[0-9a-fA-F:.]*(?:/\d{1,3})?`
	domain = `(?:[a-z0-9](?:[a-z0-9-]*[a-z0-9])?\.)+[a-z][a-z0-9-]*[a-z0-9]`
)

var (
	ipRange = regexp.MustCompile(`(` + quad + `)\s*-\s*(` + quad + `)`)
	prefix  = regexp.MustCompile(quad + `/\d{1,2}\b`)
	sixes   = regexp.MustCompile(six)
	address = regexp.MustCompile(`(?:^|[^\d.])(` + quad + `)(?:$|[^\d.])`)
	anyURL  = regexp.MustCompile(`\b[a-z][a-z0-9+.]*://[^\s"'<>,;]+`)
	host    = regexp.MustCompile(`^` + domain + `$`)
	scp     = regexp.MustCompile(`^[a-z0-9_-]+@(` + domain + `):`)
)

// Find returns the names in the texts, sorted and without duplicates.
func Find(texts []string) Names {
	addresses, ranges := map[netip.Addr]bool{}, map[netip.Prefix]bool{}
	hosts, endpoints := map[string]bool{}, map[Endpoint]bool{}
	for _, text := range texts {
		for _, m := range ipRange.FindAllStringSubmatch(text, -1) {
			for _, r := range span(m[1], m[2]) {
				ranges[r] = true
			}
		}
		for _, m := range prefix.FindAllString(text, -1) {
			n, err := netip.ParsePrefix(m)
			if err == nil && n == n.Masked() && n.Bits() >= widest && n.Bits() < 32 && ours(n.Addr()) {
				ranges[n] = true
			}
		}
		// Neighbours share the character between them, so they are looked for one after the other.
		for rest := text; ; {
			at := address.FindStringSubmatchIndex(rest)
			if at == nil {
				break
			}
			if a, err := netip.ParseAddr(rest[at[2]:at[3]]); err == nil && ours(a) && !wide(rest[at[3]:]) {
				addresses[a] = true
			}
			rest = rest[at[3]:]
		}
		for _, m := range sixes.FindAllString(text, -1) {
			if a, err := netip.ParseAddr(m); err == nil && ours(a) {
				addresses[a] = true
			} else if n, err := netip.ParsePrefix(m); err == nil && ours(n.Addr()) {
				if n == n.Masked() && n.Bits() >= widest {
					ranges[n] = true
				} else {
					addresses[n.Addr()] = true
				}
			}
		}
		for _, m := range anyURL.FindAllString(strings.ToLower(text), -1) {
			if e, ok := endpoint(m); ok {
				endpoints[e] = true
				if _, err := netip.ParseAddr(e.Host); err != nil {
					hosts[e.Host] = true
				}
			}
		}
		if h := strings.ToLower(strings.TrimSpace(text)); host.MatchString(h) {
			hosts[h] = true
		} else if m := scp.FindStringSubmatch(h); m != nil {
			hosts[m[1]] = true
		}
	}
	delete(hosts, "localhost")
	return Names{
		Addresses: slices.SortedFunc(maps.Keys(addresses), netip.Addr.Compare),
		Ranges:    slices.SortedFunc(maps.Keys(ranges), netip.Prefix.Compare),
		Hosts:     slices.Sorted(maps.Keys(hosts)),
		Endpoints: slices.SortedFunc(maps.Keys(endpoints), func(a, b Endpoint) int {
			return strings.Compare(a.String(), b.String())
		}),
	}
}

// ours reports whether the loopback of the lab can hold the address.
func ours(a netip.Addr) bool {
	switch {
	case !a.IsValid() || a.IsUnspecified() || a.IsLoopback() || a.IsMulticast():
		return false
	case a.Is6():
		return !a.IsLinkLocalUnicast() && !a.Is4In6() && a.Zone() == ""
	}
	return a.As4()[0] != 0 && a.As4()[0] < 240
}

// wide reports whether the text after an address makes it a network too large to be the user's own.
func wide(rest string) bool {
	bits, ok := strings.CutPrefix(rest, "/")
	if !ok {
		return false
	}
	end := strings.IndexFunc(bits, func(r rune) bool { return r < '0' || r > '9' })
	if end >= 0 {
		bits = bits[:end]
	}
	n, err := strconv.Atoi(bits)
	return err == nil && n < widest
}

func endpoint(text string) (Endpoint, bool) {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || u.Hostname() == "localhost" {
		return Endpoint{}, false
	}
	if a, err := netip.ParseAddr(u.Hostname()); err == nil && !ours(a) {
		return Endpoint{}, false
	}
	e := Endpoint{Host: u.Hostname(), Port: 443, TLS: u.Scheme != "http" && u.Scheme != "ssh",
		SSH: u.Scheme == "ssh"}
	switch u.Scheme {
	case "http":
		e.Port = 80
	case "ssh":
		e.Port = 22
	}
	if port := u.Port(); port != "" {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil {
			return Endpoint{}, false
		}
		e.Port = uint16(n)
	}
	return e, true
}

// span covers the range from one address to another with prefixes.
func span(from, to string) []netip.Prefix {
	a, err := netip.ParseAddr(from)
	if err != nil || !ours(a) {
		return nil
	}
	z, err := netip.ParseAddr(to)
	if err != nil || !ours(z) || z.Less(a) {
		return nil
	}
	var all []netip.Prefix
	for {
		p := netip.PrefixFrom(a, 32)
		for bits := 31; bits >= widest; bits-- {
			next := netip.PrefixFrom(a, bits)
			if next.Masked() != next || z.Less(last(next)) {
				break
			}
			p = next
		}
		all = append(all, p)
		end := last(p)
		if end == z {
			return all
		}
		a = end.Next()
	}
}

func last(p netip.Prefix) netip.Addr {
	b := p.Addr().As4()
	n := uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
	n |= uint32(1)<<(32-p.Bits()) - 1
	return netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
}
