package hcloud

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/platform"
)

var currencyForm = regexp.MustCompile(`^[A-Z]{3}$`)

// Costs sums up the prices of the servers and load balancers that a preflight's stage makes. Each server has
// a public IPv4 address, as in the library's stage.
func (p *project) Costs(ctx context.Context, v gate.Values) (*platform.Costs, error) {
	servers, balancers := map[string]string{}, map[string]string{}
	if err := errors.Join(v.Decode("types", &servers), v.Decode("balancers", &balancers)); err != nil {
		return nil, err
	}
	prices, currency, err := p.prices(ctx)
	if err != nil || len(servers) == 0 {
		return nil, err
	}
	counts := map[string]int{}
	for _, server := range servers {
		_, location, _ := strings.Cut(server, "@")
		counts[priced("server", server)]++
		counts["primary IPv4 in "+location]++
	}
	for _, balancer := range balancers {
		counts[priced("load balancer", balancer)]++
	}
	c := &platform.Costs{Currency: currency, Items: []platform.CostItem{}}
	for _, what := range slices.Sorted(maps.Keys(counts)) {
		price, known := prices[what]
		if !known {
			c.Unpriced = append(c.Unpriced, what)
			continue
		}
		n := float64(counts[what])
		c.Items = append(c.Items, platform.CostItem{What: what, Count: counts[what],
			Hourly: rounded(n * price.Hourly), Monthly: rounded(n * price.Monthly)})
		c.Hourly, c.Monthly = rounded(c.Hourly+n*price.Hourly), rounded(c.Monthly+n*price.Monthly)
	}
	return c, nil
}

// priced is server cx33 in fsn1, for cx33@fsn1.
func priced(kind, typ string) string { return kind + " " + strings.Replace(typ, "@", " in ", 1) }

func rounded(n float64) float64 { return math.Round(n*1e4) / 1e4 }

// prices reads the prices of servers, load balancers and addresses, by what they are for.
func (p *project) prices(ctx context.Context) (all map[string]platform.CostItem, currency string, err error) {
	list, _, err := p.api.Pricing.Get(ctx)
	if err != nil {
		return nil, "", fmt.Errorf("read the prices: %w", refused(err))
	}
	all = map[string]platform.CostItem{}
	add := func(what, hourly, monthly string) {
		hour, wrong := strconv.ParseFloat(hourly, 64)
		month, bad := strconv.ParseFloat(monthly, 64)
		err = errors.Join(err, wrong, bad)
		all[what] = platform.CostItem{Hourly: hour, Monthly: month}
	}
	for _, t := range list.ServerTypes {
		for _, l := range t.Pricings {
			add("server "+t.ServerType.Name+" in "+l.Location.Name, l.Hourly.Net, l.Monthly.Net)
		}
	}
	for _, t := range list.LoadBalancerTypes {
		for _, l := range t.Pricings {
			add("load balancer "+t.LoadBalancerType.Name+" in "+l.Location.Name, l.Hourly.Net, l.Monthly.Net)
		}
	}
	for _, t := range list.PrimaryIPs {
		for _, l := range t.Pricings {
			if t.Type == "ipv4" {
				add("primary IPv4 in "+l.Location, l.Hourly.Net, l.Monthly.Net)
			}
		}
	}
	if !currencyForm.MatchString(list.Currency) {
		err = errors.Join(err, errors.New("the prices have no currency"))
	}
	return all, list.Currency, err
}
