package doctor

import (
	"context"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/zclconf/go-cty/cty"
)

// The ports of Talos' and Kubernetes' APIs: whatever answers there at an address
// of the cluster's is another one.
var ports = []string{"50000", "6443"}

// patience is how long one address is waited for: in one network an answer takes
// milliseconds, and none comes from where nobody is.
const patience = 2 * time.Second

// addresses asks whether somebody lives at an address that the cluster will have.
func (x *examination) addresses(ctx context.Context) []Finding {
	wanted := x.wantedAddresses()
	if len(wanted) == 0 {
		return grey("no stage says which addresses the cluster will have")
	}
	if x.Stands {
		return green("they are this cluster's, which stands; castle status asks it")
	}
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	var mu sync.Mutex
	var all sync.WaitGroup
	taken := map[string][]string{}
	for address := range wanted {
		for _, port := range ports {
			all.Go(func() {
				conn, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(address, port))
				if err != nil {
					return
				}
				mu.Lock()
				defer mu.Unlock()
				taken[address] = append(taken[address], port)
				conn.Close() //nolint:errcheck // nothing was written
			})
		}
	}
	all.Wait()
	if len(taken) == 0 {
		return green("nobody answers at %s on %s", strings.Join(slices.Sorted(maps.Keys(wanted)), ", "), strings.Join(ports, " or "))
	}
	var found []Finding
	for _, address := range slices.Sorted(maps.Keys(taken)) {
		slices.Sort(taken[address])
		found = append(found, red("give the cluster another address, or end what is there; if it is this cluster, its state is elsewhere (--state-dir)",
			"somebody answers at %s (%s) on %s", address, wanted[address], strings.Join(taken[address], " and "))...)
	}
	return found
}

// wantedAddresses are those of the machines and the virtual one, with whose each is,
// without those where somebody lives already and is to.
func (x *examination) wantedAddresses() map[string]string {
	wanted, inhabited := map[string]string{}, x.inhabited()
	add := func(v cty.Value, whose string) {
		if a, err := netip.ParseAddr(known(v)); err == nil && !inhabited[a.String()] {
			wanted[a.String()] = whose
		}
	}
	if vip := x.variable("vip"); vip != cty.NilVal {
		add(vip, "vip")
	}
	nodes := x.variable("nodes")
	if nodes == cty.NilVal || !nodes.CanIterateElements() {
		return wanted
	}
	for it := nodes.ElementIterator(); it.Next(); {
		key, node := it.Element()
		if node.Type().IsObjectType() && node.Type().HasAttribute("address") && key.Type() == cty.String {
			add(node.GetAttr("address"), "node "+key.AsString())
		}
	}
	return wanted
}

// names asks whether the hosts of the addresses in the configuration are known. One
// that stands inside another value may be meant for others than this machine.
func (x *examination) names(ctx context.Context) []Finding {
	hosts := map[string]bool{} // whether this machine needs it itself
	for _, s := range x.Stages {
		for name, v := range x.inputs(s) {
			// An issuer is a name that tokens carry, and nobody has to find it.
			if host := hostOf(known(v)); host != "" && name != "serviceaccount_issuer" {
				hosts[host] = true
				continue
			}
			for _, text := range textsIn(v) {
				if host := hostOf(text); host != "" {
					hosts[host] = hosts[host] || false
				}
			}
		}
	}
	if factory := x.text("talos_image_factory"); factory != "" && !isAddress(factory) {
		hosts[factory] = hosts[factory] || false // Proxmox and the machines fetch from it
	}
	if len(hosts) == 0 {
		return green("the configuration names none")
	}
	sorted := slices.Sorted(maps.Keys(hosts))
	failed := make([]error, len(sorted))
	var all sync.WaitGroup
	for i, host := range sorted {
		all.Go(func() { _, failed[i] = x.Resolve(ctx, host) })
	}
	all.Wait()
	var found []Finding
	for i, host := range sorted {
		switch {
		case failed[i] == nil:
		case hosts[host]:
			found = append(found, red("look at the name and at this machine's DNS (/etc/resolv.conf, a VPN)", "%s does not resolve: %v", host, cause(ctx, failed[i]))...)
		default:
			found = append(found, yellow("look at the name; if it is for the cluster's machines alone, they have to resolve it", "%s does not resolve here: %v", host, cause(ctx, failed[i]))...)
		}
	}
	if len(found) > 0 {
		return found
	}
	return green("%s", strings.Join(sorted, ", "))
}

// hostOf is the host name in a text that is a URL; empty for an address, and for a
// name that only the cluster itself knows.
func hostOf(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" && u.Scheme != "oci" {
		return ""
	}
	host := strings.ToLower(u.Hostname())
	if host == "" || isAddress(host) || strings.HasSuffix(host, ".svc") || strings.HasSuffix(host, ".cluster.local") {
		return ""
	}
	return host
}

func isAddress(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil
}

func textsIn(v cty.Value) []string {
	var all []string
	if v == cty.NilVal {
		return nil
	}
	_ = cty.Walk(v, func(_ cty.Path, inner cty.Value) (bool, error) { // the function returns none
		if text := known(inner); text != "" {
			all = append(all, text)
		}
		return true, nil
	})
	return all
}
