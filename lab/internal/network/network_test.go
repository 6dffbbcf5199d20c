package network_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/ephemeral-castle/castle/lab/internal/network"
)

func TestFind(t *testing.T) {
	for name, c := range map[string]struct {
		texts                               []string
		addresses, ranges, hosts, endpoints []string
	}{
		"a node's address": {texts: []string{"192.168.1.211"}, addresses: []string{"192.168.1.211"}},
		"an address with its prefix length is one address": {texts: []string{
			"ip=192.168.1.211/24,gw=192.168.1.1",
		},
			addresses: []string{"192.168.1.1", "192.168.1.211"}},
		"a network is a range": {texts: []string{"192.168.7.0/24"}, addresses: []string{"192.168.7.0"},
			ranges: []string{"192.168.7.0/24"}},
		"a pool is covered exactly": {texts: []string{"192.168.1.240-192.168.1.250"},
			addresses: []string{"192.168.1.240", "192.168.1.250"},
			ranges:    []string{"192.168.1.240/29", "192.168.1.248/31", "192.168.1.250/32"}},
		"a pool of one": {texts: []string{"10.0.0.9 - 10.0.0.9"},
			addresses: []string{"10.0.0.9"}, ranges: []string{"10.0.0.9/32"}},
		"a pool that runs backwards is none": {texts: []string{"10.0.0.9-10.0.0.8"},
			addresses: []string{"10.0.0.8", "10.0.0.9"}},
		"addresses side by side": {texts: []string{"1.1.1.1,8.8.8.8 9.9.9.9"},
			addresses: []string{"1.1.1.1", "8.8.8.8", "9.9.9.9"}},
		"everything is no network": {texts: []string{"0.0.0.0/0", "10.96.0.0/12", "0.0.0.0", "224.0.0.1",
			"255.255.255.255"}},
		"the loopback is there already": {
			texts: []string{"127.0.0.1", "https://localhost:8006", "https://127.0.0.1:8006"},
		},
		"a version is no address": {texts: []string{"v1.36.0", "1.2.3.4.5", "999.1.1.1", "2026.08.01"}},
		"a URL's host and port": {texts: []string{"https://EU.infisical.com", "https://192.168.1.10:8006/",
			"http://pve.home.arpa:81/x"},
			addresses: []string{"192.168.1.10"}, hosts: []string{"eu.infisical.com", "pve.home.arpa"},
			endpoints: []string{"192.168.1.10:8006 true", "eu.infisical.com:443 true",
				"pve.home.arpa:81 false"}},
		"a URL inside a text": {texts: []string{`{"repo":"https://metallb.github.io/metallb"}`},
			hosts:     []string{"metallb.github.io"},
			endpoints: []string{"metallb.github.io:443 true"}},
		"a plain name": {texts: []string{"pve.home.arpa", "not.a.name.1", "blue", "some text. more text"},
			hosts: []string{"pve.home.arpa"}},
		"Git over SSH": {texts: []string{"git@github.com:someone/fleet.git"}, hosts: []string{"github.com"}},
		"addresses and networks of IPv6": {texts: []string{"fd00:1::21", "ip6=fd00:1::22/64,gw6=fe80::1",
			"fd00:1::200/124", "https://[fd00:1::10]:8006/"},
			addresses: []string{"fd00:1::10", "fd00:1::21", "fd00:1::22"},
			ranges:    []string{"fd00:1::200/124"},
			endpoints: []string{"[fd00:1::10]:8006 true"}},
		"what looks like IPv6": {texts: []string{"BC:24:11:2A:3B:4C", "12:30:59", "a::1b::c", "x::y", "::1",
			"ff02::1", "::/0"}},
		"said twice":    {texts: []string{"10.0.0.1", "10.0.0.1"}, addresses: []string{"10.0.0.1"}},
		"a bad port":    {texts: []string{"https://a.example.org:99999"}},
		"nothing named": {texts: []string{"", "true", "421"}},
	} {
		t.Run(name, func(t *testing.T) {
			n := network.Find(c.texts)
			var endpoints []string
			for _, e := range n.Endpoints {
				endpoints = append(endpoints, fmt.Sprint(e, " ", e.TLS))
			}
			same(t, "addresses", texts(n.Addresses), c.addresses)
			same(t, "ranges", texts(n.Ranges), c.ranges)
			same(t, "hosts", n.Hosts, c.hosts)
			same(t, "endpoints", endpoints, c.endpoints)
		})
	}
}

func texts[T fmt.Stringer](all []T) []string {
	var out []string
	for _, x := range all {
		out = append(out, x.String())
	}
	return out
}

func same(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}
