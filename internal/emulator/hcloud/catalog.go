package hcloud

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

// The locations, types and prices are those of autumn 2026, as far as tests need them. Prices are examples.
var locations = []schema.Location{
	{ID: 1, Name: "fsn1", City: "Falkenstein", Country: "DE", NetworkZone: "eu-central"},
	{ID: 2, Name: "nbg1", City: "Nuremberg", Country: "DE", NetworkZone: "eu-central"},
	{ID: 3, Name: "hel1", City: "Helsinki", Country: "FI", NetworkZone: "eu-central"},
	{ID: 4, Name: "ash", City: "Ashburn, VA", Country: "US", NetworkZone: "us-east"},
	{ID: 5, Name: "hil", City: "Hillsboro, OR", Country: "US", NetworkZone: "us-west"},
}

// serverTypes have the prices of an hour in euros.
var serverTypes = []struct {
	schema.ServerType
	hourly string
}{
	{serverType(114, "cx23", 2, 4, 40, "shared", "x86"), "0.0072"},
	{serverType(115, "cx33", 4, 8, 80, "shared", "x86"), "0.0104"},
	{serverType(116, "cx43", 8, 16, 160, "shared", "x86"), "0.0192"},
	{serverType(45, "cax11", 2, 4, 40, "shared", "arm"), "0.0080"},
	{serverType(93, "cax21", 4, 8, 80, "shared", "arm"), "0.0136"},
	{serverType(109, "cpx22", 2, 4, 80, "shared", "x86"), "0.0128"},
	{serverType(97, "ccx23", 4, 16, 160, "dedicated", "x86"), "0.0504"},
}

var balancerTypes = []schema.LoadBalancerType{
	{ID: 1, Name: "lb11", Description: "LB11", MaxConnections: 10000, MaxServices: 5, MaxTargets: 25,
		MaxAssignedCertificates: 10},
	{ID: 2, Name: "lb21", Description: "LB21", MaxConnections: 20000, MaxServices: 15, MaxTargets: 75,
		MaxAssignedCertificates: 25},
}

func serverType(id int64, name string, cores int, memory float32, disk int, cpu, architecture string,
) schema.ServerType {
	return schema.ServerType{ID: id, Name: name, Description: strings.ToUpper(name), Category: cpu,
		Cores: cores, Memory: memory, Disk: disk, StorageType: "local", CPUType: cpu,
		Architecture: architecture}
}

// price makes a month of 730 hours of an hour's price, and 19 % of tax.
func price(hourly string) (hour, month schema.Price) {
	net, err := strconv.ParseFloat(hourly, 64)
	if err != nil {
		panic(err) // a constant of this file
	}
	text := func(n float64) schema.Price {
		return schema.Price{Net: fmt.Sprintf("%.4f", n), Gross: fmt.Sprintf("%.4f", n*1.19)}
	}
	return text(net), text(net * 730)
}

// types returns the server types with their prices and where they are available.
func (s *Server) types() []schema.ServerType {
	all := make([]schema.ServerType, len(serverTypes))
	for i, t := range serverTypes {
		all[i] = t.ServerType
		for _, l := range locations {
			hour, month := price(t.hourly)
			all[i].Prices = append(all[i].Prices, schema.PricingServerTypePrice{Location: l.Name,
				PriceHourly: hour, PriceMonthly: month})
			free := !slices.Contains(s.config.Unavailable, t.Name+"@"+l.Name)
			all[i].Locations = append(all[i].Locations, schema.ServerTypeLocation{ID: l.ID, Name: l.Name,
				Available: free, Recommended: free})
		}
	}
	return all
}

func balancerPrices() []schema.LoadBalancerType {
	all := slices.Clone(balancerTypes)
	for i, hourly := range []string{"0.0120", "0.0360"} {
		for _, l := range locations {
			hour, month := price(hourly)
			all[i].Prices = append(all[i].Prices, schema.PricingLoadBalancerTypePrice{Location: l.Name,
				PriceHourly: hour, PriceMonthly: month})
		}
	}
	return all
}

func (s *Server) pricing(*call) (any, error) {
	p := schema.Pricing{Currency: "EUR", VATRate: "19.00"}
	for _, t := range s.types() {
		p.ServerTypes = append(p.ServerTypes, schema.PricingServerType{ID: t.ID, Name: t.Name,
			Prices: t.Prices})
	}
	for _, t := range balancerPrices() {
		p.LoadBalancerTypes = append(p.LoadBalancerTypes,
			schema.PricingLoadBalancerType{ID: t.ID, Name: t.Name, Prices: t.Prices})
	}
	for family, hourly := range []string{"0.0008", "0.0000"} {
		hour, month := price(hourly)
		v := schema.PricingPrimaryIP{Type: []string{"ipv4", "ipv6"}[family]}
		floating := schema.PricingFloatingIPType{Type: v.Type}
		for _, l := range locations {
			v.Prices = append(v.Prices, schema.PricingPrimaryIPTypePrice{Location: l.Name, PriceHourly: hour,
				PriceMonthly: month})
			floating.Prices = append(floating.Prices,
				schema.PricingFloatingIPTypePrice{Location: l.Name, PriceMonthly: month})
		}
		p.PrimaryIPs, p.FloatingIPs = append(p.PrimaryIPs, v), append(p.FloatingIPs, floating)
	}
	p.Volume.PricePerGBPerMonth = schema.Price{Net: "0.0440", Gross: "0.0524"}
	p.Image.PricePerGBMonth = schema.Price{Net: "0.0110", Gross: "0.0131"}
	p.ServerBackup.Percentage = "20.00"
	return map[string]any{"pricing": p}, nil
}

// byName finds one of a catalog, by its name or id.
func byName[T any](all []T, key func(T) (int64, string), want schema.IDOrName) (T, bool) {
	i := slices.IndexFunc(all, func(t T) bool {
		id, name := key(t)
		return want.ID != 0 && id == want.ID || want.Name != "" && name == want.Name
	})
	if i < 0 {
		return *new(T), false
	}
	return all[i], true
}

func locationKey(l schema.Location) (int64, string)             { return l.ID, l.Name }
func typeKey(t schema.ServerType) (int64, string)               { return t.ID, t.Name }
func balancerTypeKey(t schema.LoadBalancerType) (int64, string) { return t.ID, t.Name }

func location(name string) (schema.Location, error) {
	if l, known := byName(locations, locationKey, schema.IDOrName{Name: name}); known {
		return l, nil
	}
	return schema.Location{}, invalid("location", "unknown location "+name)
}

// catalog makes a read-only collection.
func catalog[T any](name, plural string, rows []T, head func(*T) head) *collection[T] {
	k := &collection[T]{name: name, plural: plural, rows: map[int64]*T{}, head: head}
	for i := range rows {
		k.rows[*head(&rows[i]).id] = &rows[i]
	}
	return k
}

func (s *Server) route() {
	s.defineServers()
	s.defineNetworks()
	s.defineBalancers()
	s.defineFirewalls()
	s.defineAddresses()
	s.defineOthers()
	serve(s, catalog("location", "locations", slices.Clone(locations),
		func(l *schema.Location) head { return head{id: &l.ID, name: &l.Name} }))
	serve(s, catalog("server_type", "server_types", s.types(),
		func(t *schema.ServerType) head { return head{id: &t.ID, name: &t.Name} }))
	serve(s, catalog("load_balancer_type", "load_balancer_types", balancerPrices(),
		func(t *schema.LoadBalancerType) head { return head{id: &t.ID, name: &t.Name} }))
	s.handle("GET /v1/pricing", s.pricing)
	s.handle("GET /v1/actions", func(c *call) (any, error) { return s.listActions(c, reference{}) })
	s.handle("GET /v1/actions/{id}", s.getAction)
	// Gone since October 2026.
	s.handle("GET /v1/datacenters", func(*call) (any, error) {
		return nil, fail(http.StatusGone, "deprecated_api_endpoint", "datacenters have been removed")
	})
	s.handle("/", func(*call) (any, error) {
		return nil, fail(http.StatusNotFound, "not_found", "no such path")
	})
}

// equals reports whether a query leaves a field open, or has its value.
func equals(query url.Values, name, value string) bool {
	return !query.Has(name) || slices.Contains(query[name], value)
}
