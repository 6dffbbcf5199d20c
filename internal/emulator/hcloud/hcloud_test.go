package hcloud_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	client "github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"

	"github.com/ephemeral-castle/castle/internal/emulator/hcloud"
)

const token = "writes"

// transport calls the emulator without a network, so that synctest can advance time.
type transport struct{ s *hcloud.Server }

func (t transport) RoundTrip(r *http.Request) (resp *http.Response, err error) {
	defer func() {
		if recover() != nil {
			err = errors.New("connection reset by peer")
		}
	}()
	if r.Body == nil {
		r.Body = http.NoBody
	}
	w := httptest.NewRecorder()
	t.s.ServeHTTP(w, r)
	return w.Result(), nil
}

// project is an emulator, with hcloud-go's client for it.
type project struct {
	*testing.T
	s   *hcloud.Server
	api *client.Client
}

// in runs a test in a bubble, with an emulator whose actions take a second unless c says otherwise.
func in(t *testing.T, c hcloud.Config, test func(project)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c.Token, c.ReadOnly = token, "reads"
		if c.Duration == 0 {
			c.Duration = time.Second
		}
		s := hcloud.New(c)
		defer s.Close()
		test(project{t, s, dial(s, token)})
	})
}

func dial(s *hcloud.Server, token string) *client.Client {
	return client.NewClient(client.WithEndpoint("http://api.test/v1"), client.WithToken(token),
		client.WithHTTPClient(&http.Client{Transport: transport{s}}),
		client.WithPollOpts(client.PollOpts{BackoffFunc: client.ConstantBackoff(100 * time.Millisecond)}))
}

func (p project) ctx() context.Context { return p.Context() }

// must fails the test at an error of the API.
func (p project) must(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

// wait waits for actions as every client does.
func (p project) wait(actions ...*client.Action) {
	p.Helper()
	p.must(p.api.Action.WaitFor(p.ctx(), actions...))
}

// refused fails the test unless err has a code.
func (p project) refused(err error, code client.ErrorCode) {
	p.Helper()
	if !client.IsError(err, code) {
		p.Errorf("%v, want %s", err, code)
	}
}

func (p project) image() *client.Image {
	return &client.Image{ID: p.s.AddImage(schema.Image{Labels: map[string]string{"os": "talos"}})}
}

// server creates a server, and waits until it runs.
func (p project) server(name string, more ...func(*client.ServerCreateOpts)) *client.Server {
	p.Helper()
	opts := client.ServerCreateOpts{Name: name, ServerType: &client.ServerType{Name: "cx23"},
		Image:    p.image(),
		Location: &client.Location{Name: "fsn1"}}
	for _, change := range more {
		change(&opts)
	}
	made, _, err := p.api.Server.Create(p.ctx(), opts)
	p.must(err)
	p.wait(append(made.NextActions, made.Action)...)
	return p.again(made.Server)
}

func (p project) again(v *client.Server) *client.Server {
	p.Helper()
	now, _, err := p.api.Server.GetByID(p.ctx(), v.ID)
	p.must(err)
	return now
}

// network creates 10.0.0.0/16 with the subnet 10.0.1.0/24.
func (p project) network() *client.Network {
	p.Helper()
	v, _, err := p.api.Network.Create(p.ctx(), client.NetworkCreateOpts{Name: "green",
		IPRange: cidr("10.0.0.0/16")})
	p.must(err)
	action, _, err := p.api.Network.AddSubnet(p.ctx(), v, client.NetworkAddSubnetOpts{Subnet: subnet})
	p.must(err)
	p.wait(action)
	return v
}

var subnet = client.NetworkSubnet{Type: client.NetworkSubnetTypeCloud, IPRange: cidr("10.0.1.0/24"),
	NetworkZone: client.NetworkZoneEUCentral}

func cidr(text string) *net.IPNet {
	_, block, err := net.ParseCIDR(text)
	if err != nil {
		panic(err)
	}
	return block
}

func TestAServerStartsAndIsLockedUntilThen(t *testing.T) {
	var started []hcloud.Machine
	c := hcloud.Config{OnStart: func(m hcloud.Machine) { started = append(started, m) }}
	in(t, c, func(p project) {
		made, _, err := p.api.Server.Create(p.ctx(), client.ServerCreateOpts{Name: "cp-1", UserData: "#talos",
			ServerType: &client.ServerType{Name: "cx23"}, Image: p.image(),
			Location: &client.Location{Name: "nbg1"}, Labels: map[string]string{"castle": "green"}})
		p.must(err)
		if v := p.again(made.Server); v.Status != client.ServerStatusInitializing || !v.Locked {
			p.Errorf("%s, locked %t, while it is created", v.Status, v.Locked)
		}
		_, _, err = p.api.Server.Poweroff(p.ctx(), made.Server)
		p.refused(err, client.ErrorCodeLocked)
		time.Sleep(500 * time.Millisecond)
		action, _, err := p.api.Action.GetByID(p.ctx(), made.Action.ID)
		p.must(err)
		if action.Progress != 50 {
			p.Errorf("progress %d halfway", action.Progress)
		}
		p.wait(append(made.NextActions, made.Action)...)
		v := p.again(made.Server)
		if v.Status != client.ServerStatusRunning || v.Locked || v.Location.Name != "nbg1" {
			p.Errorf("%s in %s, locked %t, after its actions", v.Status, v.Location.Name, v.Locked)
		}
		if v.PublicNet.IPv4.IP.String() != "198.51.100.1" || v.PublicNet.IPv6.Network == nil {
			p.Errorf("public addresses %v and %v", v.PublicNet.IPv4.IP, v.PublicNet.IPv6.Network)
		}
		if len(started) != 1 || started[0].Server.Name != "cp-1" || started[0].UserData != "#talos" {
			p.Errorf("started %v", started)
		}
	})
}

func TestADeletedServerLeavesWhatIsNotItsOwn(t *testing.T) {
	in(t, hcloud.Config{}, func(p project) {
		ip, _, err := p.api.PrimaryIP.Create(p.ctx(), client.PrimaryIPCreateOpts{Name: "kept", Type: "ipv4",
			Location: "fsn1", AutoDelete: new(false)})
		p.must(err)
		network := p.network()
		v := p.server("cp-1", func(o *client.ServerCreateOpts) {
			o.PublicNet = &client.ServerCreatePublicNet{EnableIPv4: true, EnableIPv6: true,
				IPv4: ip.PrimaryIP}
			o.Networks = []*client.Network{network}
		})
		volume, _, err := p.api.Volume.Create(p.ctx(), client.VolumeCreateOpts{Name: "data", Size: 10,
			Server: v})
		p.must(err)
		p.wait(append(volume.NextActions, volume.Action)...)
		_, err = p.api.PrimaryIP.Delete(p.ctx(), ip.PrimaryIP)
		p.refused(err, "must_be_unassigned")
		_, err = p.api.Volume.Delete(p.ctx(), volume.Volume)
		p.refused(err, client.ErrorCodeServiceError)

		gone, _, err := p.api.Server.DeleteWithResult(p.ctx(), v)
		p.must(err)
		p.wait(gone.Action)
		if again := p.again(v); again != nil {
			p.Errorf("server %d is still there", again.ID)
		}
		left := p.s.PrimaryIPs()
		if len(left) != 1 || left[0].Name != "kept" || left[0].AssigneeID != nil {
			p.Errorf("primary IPs %+v", left)
		}
		if volumes := p.s.Volumes(); len(volumes) != 1 || volumes[0].Server != nil {
			p.Errorf("volumes %+v", volumes)
		}
		if networks := p.s.Networks(); len(networks) != 1 || len(networks[0].Servers) != 0 {
			p.Errorf("networks %+v", networks)
		}
		_, err = p.api.PrimaryIP.Delete(p.ctx(), ip.PrimaryIP)
		p.must(err)
	})
}

func TestRefusals(t *testing.T) {
	c := hcloud.Config{Quota: map[string]int{"servers": 2}, Unavailable: []string{"cx23@hel1"}}
	in(t, c, func(p project) {
		v := p.server("cp-1")
		create := func(name, typ, location string) error {
			_, _, err := p.api.Server.Create(p.ctx(), client.ServerCreateOpts{Name: name, Image: v.Image,
				ServerType: &client.ServerType{Name: typ}, Location: &client.Location{Name: location}})
			return err
		}
		p.refused(create("cp-1", "cx23", "fsn1"), client.ErrorCodeUniquenessError)
		p.refused(create("cp-2", "cx23", "hel1"), client.ErrorCodeResourceUnavailable)
		p.refused(create("cp-2", "cx1", "fsn1"), client.ErrorCodeInvalidInput)
		p.refused(create("cp-2", "cax11", "fsn1"), client.ErrorCodeInvalidInput)
		p.refused(create("cp_2", "cx23", "fsn1"), client.ErrorCodeInvalidInput)
		p.server("cp-2")
		p.refused(create("cp-3", "cx23", "fsn1"), client.ErrorCodeResourceLimitExceeded)

		reader := dial(p.s, "reads")
		if _, err := reader.Server.All(p.ctx()); err != nil {
			p.Error(err)
		}
		_, _, err := reader.Server.Poweroff(p.ctx(), v)
		p.refused(err, client.ErrorCodeTokenReadonly)
		_, err = dial(p.s, "stranger").Server.All(p.ctx())
		p.refused(err, client.ErrorCodeUnauthorized)

		protected, _, err := p.api.Server.ChangeProtection(p.ctx(), v,
			client.ServerChangeProtectionOpts{Delete: new(true), Rebuild: new(true)})
		p.must(err)
		p.wait(protected)
		_, _, err = p.api.Server.DeleteWithResult(p.ctx(), v)
		p.refused(err, client.ErrorCodeProtected)
		_, _, err = p.api.Server.ChangeType(p.ctx(), v,
			client.ServerChangeTypeOpts{ServerType: &client.ServerType{Name: "cx33"}})
		p.refused(err, client.ErrorCodeServerNotStopped)
	})
}

func TestAPlacementGroupHoldsTenServers(t *testing.T) {
	in(t, hcloud.Config{}, func(p project) {
		group, _, err := p.api.PlacementGroup.Create(p.ctx(),
			client.PlacementGroupCreateOpts{Name: "cp", Type: client.PlacementGroupTypeSpread})
		p.must(err)
		into := func(o *client.ServerCreateOpts) { o.PlacementGroup = group.PlacementGroup }
		for i := range 10 {
			p.server(fmt.Sprintf("cp-%d", i), into)
		}
		_, _, err = p.api.Server.Create(p.ctx(), client.ServerCreateOpts{Name: "cp-10", Image: p.image(),
			ServerType: &client.ServerType{Name: "cx23"}, PlacementGroup: group.PlacementGroup})
		p.refused(err, client.ErrorCodePlacementError)
		v, _, err := p.api.Server.GetByName(p.ctx(), "cp-3")
		p.must(err)
		if v.PlacementGroup == nil || v.PlacementGroup.Name != "cp" || len(v.PlacementGroup.Servers) != 10 {
			p.Errorf("placement group %+v", v.PlacementGroup)
		}
	})
}

func TestANetworkKeepsItsSubnetWhileServersAreAttached(t *testing.T) {
	in(t, hcloud.Config{}, func(p project) {
		network, v, other := p.network(), p.server("cp-1"), p.server("cp-2")
		attach := func(v *client.Server, ip string) error {
			action, _, err := p.api.Server.AttachToNetwork(p.ctx(), v,
				client.ServerAttachToNetworkOpts{Network: network, IP: net.ParseIP(ip)})
			if err == nil {
				p.wait(action)
			}
			return err
		}
		p.must(attach(v, "10.0.1.10"))
		p.refused(attach(v, "10.0.1.11"), client.ErrorCodeServerAlreadyAttached)
		p.refused(attach(other, "10.0.1.10"), client.ErrorCodeIPNotAvailable)
		p.refused(attach(other, "10.0.9.9"), client.ErrorCodeIPNotAvailable)
		if nets := p.again(v).PrivateNet; len(nets) != 1 || nets[0].IP.String() != "10.0.1.10" {
			p.Errorf("private networks %+v", nets)
		}
		alias, _, err := p.api.Server.ChangeAliasIPs(p.ctx(), v,
			client.ServerChangeAliasIPsOpts{Network: network,
				AliasIPs: []net.IP{net.ParseIP("10.0.1.100")}})
		p.must(err)
		p.wait(alias)
		if nets := p.again(v).PrivateNet; len(nets[0].Aliases) != 1 ||
			nets[0].Aliases[0].String() != "10.0.1.100" {
			p.Errorf("aliases %+v", nets)
		}

		_, _, err = p.api.Network.DeleteSubnet(p.ctx(), network,
			client.NetworkDeleteSubnetOpts{Subnet: subnet})
		p.refused(err, client.ErrorCodeServiceError)
		_, err = p.api.Network.Delete(p.ctx(), network)
		p.must(err)
		if nets := p.again(v).PrivateNet; len(nets) != 0 {
			p.Errorf("in %+v after its network was deleted", nets)
		}
	})
}

func TestALoadBalancerReachesServersByLabel(t *testing.T) {
	in(t, hcloud.Config{}, func(p project) {
		network := p.network()
		p.server("cp-1", func(o *client.ServerCreateOpts) { o.Labels = map[string]string{"role": "cp"} })
		made, _, err := p.api.LoadBalancer.Create(p.ctx(), client.LoadBalancerCreateOpts{Name: "api",
			LoadBalancerType: &client.LoadBalancerType{Name: "lb11"},
			Location:         &client.Location{Name: "fsn1"}})
		p.must(err)
		p.wait(made.Action)
		lb := made.LoadBalancer
		byLabel := client.LoadBalancerAddLabelSelectorTargetOpts{Selector: "role=cp",
			UsePrivateIP: new(true)}
		_, _, err = p.api.LoadBalancer.AddLabelSelectorTarget(p.ctx(), lb, byLabel)
		p.refused(err, client.ErrorCodeLoadBalancerNotAttachedToNetwork)
		joined, _, err := p.api.LoadBalancer.AttachToNetwork(p.ctx(), lb,
			client.LoadBalancerAttachToNetworkOpts{Network: network, IP: net.ParseIP("10.0.1.5")})
		p.must(err)
		p.wait(joined)
		service := client.LoadBalancerAddServiceOpts{Protocol: client.LoadBalancerServiceProtocolTCP,
			ListenPort: new(6443), DestinationPort: new(6443)}
		added, _, err := p.api.LoadBalancer.AddService(p.ctx(), lb, service)
		p.must(err)
		p.wait(added)
		_, _, err = p.api.LoadBalancer.AddService(p.ctx(), lb, service)
		p.refused(err, client.ErrorCodeSourcePortAlreadyUsed)
		added, _, err = p.api.LoadBalancer.AddLabelSelectorTarget(p.ctx(), lb, byLabel)
		p.must(err)
		p.wait(added)
		_, _, err = p.api.LoadBalancer.AddLabelSelectorTarget(p.ctx(), lb, byLabel)
		p.refused(err, client.ErrorCodeTargetAlreadyDefined)
		lb, _, err = p.api.LoadBalancer.GetByID(p.ctx(), lb.ID)
		p.must(err)
		healthy := client.LoadBalancerTargetHealthStatusStatusHealthy
		if len(lb.Targets) != 1 || len(lb.Targets[0].Targets) != 1 ||
			lb.Targets[0].Targets[0].HealthStatus[0].Status != healthy {
			p.Errorf("targets %+v", lb.Targets)
		}
	})
}

// A load balancer listens from its first service on, and passes connections on while a target is healthy.
func TestALoadBalancerPassesConnectionsToHealthyTargets(t *testing.T) {
	ready := false
	c := hcloud.Config{Listens: func(_ int64, port int) bool { return ready && port == 30443 }}
	in(t, c, func(p project) {
		v := p.server("worker-1")
		made, _, err := p.api.LoadBalancer.Create(p.ctx(), client.LoadBalancerCreateOpts{Name: "web",
			LoadBalancerType: &client.LoadBalancerType{Name: "lb11"},
			Location:         &client.Location{Name: "fsn1"},
			Network:          p.network(), Labels: map[string]string{"service": "1"}})
		p.must(err)
		p.wait(made.Action)
		lb := p.s.LoadBalancers()[0]
		public, six, private := lb.PublicNet.IPv4.IP, lb.PublicNet.IPv6.IP, lb.PrivateNet[0].IP
		listens := func(want map[string]bool) {
			p.Helper()
			if all := p.s.Frontends("service"); !maps.Equal(all, want) {
				p.Errorf("listens at %v, want %v", all, want)
			}
		}
		at := func(healthy bool) map[string]bool {
			return map[string]bool{public + ":443": healthy, "[" + six + "]:443": healthy,
				private + ":443": healthy}
		}
		listens(map[string]bool{})
		added, _, err := p.api.LoadBalancer.AddService(p.ctx(), made.LoadBalancer,
			client.LoadBalancerAddServiceOpts{Protocol: client.LoadBalancerServiceProtocolTCP,
				ListenPort: new(443), DestinationPort: new(30443)})
		p.must(err)
		p.wait(added)
		listens(at(false))
		added, _, err = p.api.LoadBalancer.AddServerTarget(p.ctx(), made.LoadBalancer,
			client.LoadBalancerAddServerTargetOpts{Server: v})
		p.must(err)
		p.wait(added)
		listens(at(false))
		ready = true
		listens(at(true))
		p.s.PowerOff(v.ID)
		listens(at(false))
		hidden, _, err := p.api.LoadBalancer.DisablePublicInterface(p.ctx(), made.LoadBalancer)
		p.must(err)
		p.wait(hidden)
		listens(map[string]bool{private + ":443": false})
		if all := p.s.Frontends("other"); len(all) != 0 {
			p.Errorf("with another label: %v", all)
		}
	})
}

func TestAFirewallInUseStays(t *testing.T) {
	in(t, hcloud.Config{}, func(p project) {
		v := p.server("cp-1")
		port := "6443"
		made, _, err := p.api.Firewall.Create(p.ctx(), client.FirewallCreateOpts{Name: "green",
			Rules: []client.FirewallRule{{Direction: client.FirewallRuleDirectionIn, Port: &port,
				Protocol: client.FirewallRuleProtocolTCP, SourceIPs: []net.IPNet{*cidr("0.0.0.0/0")}}},
			ApplyTo: []client.FirewallResource{{Type: client.FirewallResourceTypeServer,
				Server: &client.FirewallResourceServer{ID: v.ID}}}})
		p.must(err)
		p.wait(made.Actions...)
		if on := p.again(v).PublicNet.Firewalls; len(on) != 1 || on[0].Firewall.ID != made.Firewall.ID {
			p.Errorf("firewalls %+v", on)
		}
		_, err = p.api.Firewall.Delete(p.ctx(), made.Firewall)
		p.refused(err, client.ErrorCodeResourceInUse)
		gone, _, err := p.api.Server.DeleteWithResult(p.ctx(), v)
		p.must(err)
		p.wait(gone.Action)
		_, err = p.api.Firewall.Delete(p.ctx(), made.Firewall)
		p.must(err)
	})
}

func TestListsHavePagesAndLabelSelectors(t *testing.T) {
	in(t, hcloud.Config{Duration: time.Millisecond}, func(p project) {
		for i := range 60 {
			_, _, err := p.api.PlacementGroup.Create(p.ctx(), client.PlacementGroupCreateOpts{
				Name: fmt.Sprintf("g%02d", i), Type: client.PlacementGroupTypeSpread,
				Labels: map[string]string{"castle": map[bool]string{true: "green", false: "blue"}[i%2 == 0],
					"n": fmt.Sprint(i)}})
			p.must(err)
		}
		all, err := p.api.PlacementGroup.All(p.ctx())
		if err != nil || len(all) != 60 {
			p.Errorf("%d groups, %v", len(all), err)
		}
		page, resp, err := p.api.PlacementGroup.List(p.ctx(), client.PlacementGroupListOpts{
			ListOpts: client.ListOpts{Page: 2, PerPage: 25}})
		if err != nil || len(page) != 25 || page[0].Name != "g25" || resp.Meta.Pagination.NextPage != 3 ||
			resp.Header.Get("Link") == "" {
			p.Errorf("page of %d from %v, %+v, %v", len(page), page, resp.Meta, err)
		}
		for selector, want := range map[string]int{"castle=green": 30, "castle==green,n=2": 1,
			"castle!=green": 30,
			"castle":        60, "!castle": 0, "n in (1, 2,3)": 3, "n notin (1,2)": 58,
			"castle=green,n notin (2,4)": 28} {
			some, err := p.api.PlacementGroup.AllWithOpts(p.ctx(), client.PlacementGroupListOpts{
				ListOpts: client.ListOpts{LabelSelector: selector}})
			if err != nil || len(some) != want {
				p.Errorf("%q: %d groups, want %d, %v", selector, len(some), want, err)
			}
		}
		_, err = p.api.PlacementGroup.AllWithOpts(p.ctx(), client.PlacementGroupListOpts{
			ListOpts: client.ListOpts{LabelSelector: "castle=(green"}})
		p.refused(err, client.ErrorCodeInvalidInput)
	})
}

func TestRequestsAreLimited(t *testing.T) {
	in(t, hcloud.Config{Limit: 3}, func(p project) {
		begin := time.Now()
		for i := range 5 {
			_, resp, err := p.api.Location.List(p.ctx(), client.LocationListOpts{})
			if err != nil || resp.Meta.Ratelimit.Limit != 3 || i == 0 && resp.Meta.Ratelimit.Remaining != 2 {
				p.Fatalf("%+v, %v", resp.Meta.Ratelimit, err)
			}
		}
		// The client waits and tries again where it is refused.
		refused := slices.ContainsFunc(p.s.Requests(), func(r hcloud.Request) bool { return r.Status == 429 })
		if !refused || time.Since(begin) < time.Second {
			p.Errorf("five requests after %v, refused: %t", time.Since(begin), refused)
		}
	})
}

func TestActionsAreSlowAndFail(t *testing.T) {
	in(t, hcloud.Config{Durations: map[string]time.Duration{"stop_server": time.Minute}}, func(p project) {
		v := p.server("cp-1")
		begin := time.Now()
		action, _, err := p.api.Server.Poweroff(p.ctx(), v)
		p.must(err)
		p.wait(action)
		if took := time.Since(begin); took < time.Minute || took > time.Minute+time.Second {
			p.Errorf("stopped after %v", took)
		}
		p.s.Fail(hcloud.Fault{Path: "servers/*/actions/poweron", Times: 1, Action: "server_error"})
		action, _, err = p.api.Server.Poweron(p.ctx(), v)
		p.must(err)
		var failed client.ActionError
		if err := p.api.Action.WaitFor(p.ctx(), action); !errors.As(err, &failed) ||
			failed.Code != "server_error" {
			p.Errorf("%v", err)
		}
		if again := p.again(v); again.Status != client.ServerStatusOff || again.Locked {
			p.Errorf("%s, locked %t, after an action without effect", again.Status, again.Locked)
		}
		p.s.Fail(hcloud.Fault{Method: "DELETE", Path: "servers/*", Times: 1, Drop: true})
		_, _, err = p.api.Server.DeleteWithResult(p.ctx(), v)
		if err == nil {
			p.Error("the connection was not closed")
		}
		p.s.Idle()
		if again := p.again(v); again != nil {
			p.Errorf("server %d is still there", v.ID)
		}
		_, err = p.api.Action.AllWithOpts(p.ctx(), client.ActionListOpts{})
		p.refused(err, "deprecated_api_endpoint")
	})
}

func TestASnapshotIsFoundByItsLabels(t *testing.T) {
	in(t, hcloud.Config{}, func(p project) {
		v := p.server("builder")
		labels := map[string]string{"os": "talos", "version": "v1.13.0"}
		made, _, err := p.api.Server.CreateImage(p.ctx(), v, &client.ServerCreateImageOpts{
			Type: client.ImageTypeSnapshot, Labels: labels})
		p.must(err)
		if made.Image.Status != client.ImageStatusCreating {
			p.Errorf("%s before the action has ended", made.Image.Status)
		}
		p.wait(made.Action)
		found, err := p.api.Image.AllWithOpts(p.ctx(), client.ImageListOpts{
			ListOpts: client.ListOpts{LabelSelector: "os=talos,version=v1.13.0"},
			Status:   []client.ImageStatus{client.ImageStatusAvailable}})
		p.must(err)
		if len(found) != 1 || found[0].ID != made.Image.ID ||
			found[0].Architecture != client.ArchitectureX86 {
			p.Errorf("images %+v", found)
		}
	})
}

func TestPricesAndTypes(t *testing.T) {
	in(t, hcloud.Config{Unavailable: []string{"cax11@nbg1"}}, func(p project) {
		prices, _, err := p.api.Pricing.Get(p.ctx())
		if err != nil || prices.Currency != "EUR" || len(prices.ServerTypes) == 0 {
			p.Errorf("%+v, %v", prices, err)
		}
		typ, _, err := p.api.ServerType.GetByName(p.ctx(), "cax11")
		p.must(err)
		if typ.Architecture != client.ArchitectureARM || len(typ.Pricings) == 0 || len(typ.Locations) == 0 {
			p.Errorf("%+v", typ)
		}
		for _, l := range typ.Locations {
			if l.Available == (l.Location.Name == "nbg1") {
				p.Errorf("available in %s: %t", l.Location.Name, l.Available)
			}
		}
	})
}
