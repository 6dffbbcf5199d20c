package hcloud

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	client "github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
	"github.com/siderolabs/gen/xslices"
	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/doctor/finding"
	emulator "github.com/ephemeral-castle/castle/internal/emulator/hcloud"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/platform"
)

const key = "the cluster's public key"

// transport calls the emulator without a network, so that synctest can advance time.
type transport struct{ s *emulator.Server }

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body == nil {
		r.Body = http.NoBody
	}
	w := httptest.NewRecorder()
	t.s.ServeHTTP(w, r)
	return w.Result(), nil
}

// in runs a test in a bubble with an emulated project, whose actions take a second.
func in(t *testing.T, c emulator.Config, test func(t *testing.T, s *emulator.Server, p *project)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c.Token, c.ReadOnly, c.Duration = "writes", "reads", time.Second
		s := emulator.New(c)
		defer s.Close()
		test(t, s, of(s, "writes"))
	})
}

func of(s *emulator.Server, token string) *project {
	return &project{interval: time.Second, timeout: time.Minute, api: client.NewClient(
		client.WithEndpoint("http://api.test/v1"), client.WithToken(token),
		client.WithHTTPClient(&http.Client{Transport: transport{s}}),
		client.WithPollOpts(client.PollOpts{BackoffFunc: client.ConstantBackoff(time.Second)}),
		client.WithRetryOpts(client.RetryOpts{MaxRetries: 1,
			BackoffFunc: client.ConstantBackoff(time.Second)}))}
}

// boot creates a server, and waits until it runs.
func boot(t *testing.T, s *emulator.Server, p *project, name string,
	labels map[string]string) *client.Server {
	t.Helper()
	made, _, err := p.api.Server.Create(t.Context(), client.ServerCreateOpts{Name: name, Labels: labels,
		Image: &client.Image{ID: s.AddImage(schema.Image{})}, ServerType: &client.ServerType{Name: "cx33"},
		Location: &client.Location{Name: "fsn1"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.api.Action.WaitFor(t.Context(), append(made.NextActions, made.Action)...); err != nil {
		t.Fatal(err)
	}
	return made.Server
}

// node is the address of a server in the stage.
func node(key string) string { return fmt.Sprintf("hcloud_server.node[%q]", key) }

// greens is the preflight of a stage with two servers and a network.
func greens(p *project) *check {
	c := &check{project: p, key: key, wanted: map[string]want{}, types: map[string]string{
		"cp-01": "cx33@fsn1", "wk-01": "cx43@hel1"}}
	for name := range c.types {
		c.wanted[node(name)] = want{address: node(name), key: name, kind: kindOf(typeServer),
			name: "green-" + name}
	}
	c.wanted["hcloud_network.cluster"] = want{address: "hcloud_network.cluster",
		kind: kindOf("hcloud_network"),
		name: "green", parts: map[string]string{"hcloud_network_subnet.machines": "10.0.1.0/24"}}
	return c
}

func inspect(t *testing.T, c *check, known ...gate.Known) gate.Inspection {
	t.Helper()
	found, err := c.inspect(t.Context(), known, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// known is a server in a state.
func known(name string, v *client.Server) gate.Known {
	return gate.Known{Address: node(name), Type: typeServer, Attributes: map[string]any{
		"id": fmt.Sprint(v.ID), "name": v.Name, "location": "fsn1"}}
}

func labels(uuid string) map[string]string {
	return map[string]string{labelCluster: "green", labelUUID: uuid}
}

// Only the uuid proves a server castle's own: neither its name nor the cluster's label does.
func TestAServerWithOurNameIsOursByItsUUIDAlone(t *testing.T) {
	derived := UUIDOf(key, typeServer, "green-cp-01")
	for name, test := range map[string]struct {
		labels   map[string]string
		recorded string
		ours     bool
		marked   bool
	}{
		"without labels":                 {nil, "", false, false},
		"of the same cluster of another": {labels("0e0b1e6c-0000-0000-0000-000000000000"), "", false, true},
		"with the derived uuid":          {labels(derived), "", true, false},
		"with the uuid that a plan had": {labels("77777777-0000-0000-0000-000000000000"),
			"77777777-0000-0000-0000-000000000000", true, false},
		"with a label of the cluster only": {map[string]string{labelCluster: "green"}, "", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, emulator.Config{}, func(t *testing.T, s *emulator.Server, p *project) {
				v := boot(t, s, p, "green-cp-01", test.labels)
				found := inspect(t, greens(p), gate.Known{Address: node("cp-01"),
					MachineID: gate.MachineID{Address: node("cp-01"), UUID: test.recorded}})
				if test.ours {
					if len(found.Foreign) != 0 || len(found.Ours) != 1 ||
						found.Ours[0].Import.ID != fmt.Sprint(v.ID) ||
						found.Ours[0].Import.Address != node("cp-01") || !found.Ours[0].Running {
						t.Errorf("%+v", found)
					}
					return
				}
				if len(found.Ours) != 0 || len(found.Foreign) != 1 ||
					found.Foreign[0].Marked != test.marked ||
					found.Foreign[0].Import != nil || len(found.Foreign[0].Fixes) == 0 {
					t.Errorf("%+v", found)
				}
			})
		})
	}
}

// Without the key nobody can tell whose a server with the cluster's label is, so a destroy stops, too.
func TestWithoutTheKeyALabelledServerIsUnverified(t *testing.T) {
	in(t, emulator.Config{}, func(t *testing.T, s *emulator.Server, p *project) {
		boot(t, s, p, "green-cp-01", labels("77777777-0000-0000-0000-000000000000"))
		c := greens(p)
		c.key = ""
		if found := inspect(t, c); len(found.Foreign) != 1 || !found.Foreign[0].Unverified {
			t.Errorf("%+v", found)
		}
	})
}

func TestANetworkOfAKilledRunIsFoundByItsName(t *testing.T) {
	in(t, emulator.Config{}, func(t *testing.T, _ *emulator.Server, p *project) {
		block := "10.0.0.0/16"
		v, _, err := p.api.Network.Create(t.Context(), client.NetworkCreateOpts{Name: "green",
			IPRange: mustCIDR(t, block), Labels: labels(UUIDOf(key, "hcloud_network", "green")),
			Subnets: []client.NetworkSubnet{{Type: client.NetworkSubnetTypeCloud,
				IPRange: mustCIDR(t, "10.0.1.0/24"), NetworkZone: client.NetworkZoneEUCentral}}})
		if err != nil {
			t.Fatal(err)
		}
		found := inspect(t, greens(p))
		if len(found.Ours) != 2 || found.Ours[0].Import.Address != "hcloud_network.cluster" ||
			found.Ours[1].Import.ID != fmt.Sprintf("%d-10.0.1.0/24", v.ID) || !found.Ours[1].NewID {
			t.Errorf("%+v", found)
		}
		state := []gate.Known{{Address: "hcloud_network.cluster", Type: "hcloud_network",
			Attributes: map[string]any{"id": fmt.Sprint(v.ID)}}}
		if found = inspect(t, greens(p), state...); len(found.Ours) != 1 {
			t.Errorf("the subnet alone: %+v", found)
		}
		state = append(state, gate.Known{Address: "hcloud_network_subnet.machines",
			Type: "hcloud_network_subnet"})
		if found = inspect(t, greens(p), state...); len(found.Ours) != 0 {
			t.Errorf("nothing is missing: %+v", found)
		}
	})
}

func TestAServerInTheStateIsTheOneWithItsID(t *testing.T) {
	in(t, emulator.Config{}, func(t *testing.T, s *emulator.Server, p *project) {
		uuid := UUIDOf(key, typeServer, "green-cp-01")
		v := boot(t, s, p, "green-cp-01", labels(uuid))
		found := inspect(t, greens(p), known("cp-01", v))
		if len(found.Foreign)+len(found.Ours) != 0 || len(found.Present) != 1 || len(found.MachineIDs) != 1 ||
			found.MachineIDs[0] != (gate.MachineID{Address: node("cp-01"), ID: "green-cp-01", UUID: uuid,
				Node: "fsn1"}) {
			t.Errorf("%+v", found)
		}
		gone := &client.Server{ID: 1, Name: "green-cp-01"}
		found = inspect(t, greens(p), known("cp-01", gone))
		if len(found.Ours) != 1 {
			t.Errorf("one that was created again, and is not in the state: %+v", found)
		}
	})
}

func TestATokenHasToBeAcceptedAndMayHaveToWrite(t *testing.T) {
	in(t, emulator.Config{}, func(t *testing.T, s *emulator.Server, p *project) {
		if found := inspect(t, greens(p)); len(found.Unusable) != 0 {
			t.Errorf("%+v", found)
		}
		reader := of(s, "reads")
		if err := reader.Admitted(t.Context()); err != nil {
			t.Error(err)
		}
		if found := inspect(t, greens(reader)); len(found.Unusable) != 1 ||
			!strings.Contains(found.Unusable[0].What, "only read") {
			t.Errorf("%+v", found)
		}
		if err := of(s, "other").Admitted(t.Context()); !errors.Is(err, platform.ErrRefused) {
			t.Errorf("%v", err)
		}
		if n := len(s.PlacementGroups()); n != 0 {
			t.Errorf("the look has made %d placement groups", n)
		}
	})
}

func TestATypeWithoutRoomIsSaidBeforeAnythingIsMade(t *testing.T) {
	in(t, emulator.Config{Unavailable: []string{"cx43@hel1", "cx33@fsn1"}},
		func(t *testing.T, s *emulator.Server, p *project) {
			c := greens(p)
			c.types["cp-01"] = "cx22@fsn1"
			var what []string
			for _, f := range inspect(t, c).Unusable {
				what = append(what, f.What)
			}
			want := []string{"server type cx22, which cp-01 has, does not exist",
				"server type cx43, which wk-01 has, is not available in hel1 now"}
			if !slices.Equal(what, want) {
				t.Errorf("%q", what)
			}
		})
}

func TestGoneWaitsForADeletionAndProvesIt(t *testing.T) {
	in(t, emulator.Config{Durations: map[string]time.Duration{"delete_server": 20 * time.Second}},
		func(t *testing.T, s *emulator.Server, p *project) {
			v, other := boot(t, s, p, "green-cp-01", nil), boot(t, s, p, "green-wk-01", nil)
			if _, _, err := p.api.Server.DeleteWithResult(t.Context(), v); err != nil {
				t.Fatal(err)
			}
			objects := (Platform{}).ObjectsOf([]gate.Known{known("cp-01", v), known("wk-01", other),
				{Type: "hcloud_network",
					Attributes: map[string]any{"id": "77", "name": "green"}}})
			if now := p.Now(t.Context(), objects); now[0].Gone || now[1].Gone || !now[2].Gone {
				t.Errorf("%+v", now)
			}
			begin, reports := time.Now(), 0
			all, err := p.Gone(t.Context(), objects, func(string) { reports++ })
			if err != nil || !all[0].Gone || all[1].Gone ||
				all[1].Fix != fmt.Sprintf("hcloud server delete %d", other.ID) {
				t.Errorf("%+v, %v", all, err)
			}
			if took := time.Since(begin); took < 15*time.Second || reports != 1 {
				t.Errorf("after %v with %d reports", took, reports)
			}
		})
}

// No answer proves that something is gone.
func TestNothingIsGoneWithoutAnAnswer(t *testing.T) {
	in(t, emulator.Config{}, func(t *testing.T, s *emulator.Server, p *project) {
		s.Fail(emulator.Fault{Path: "servers", Status: 503, Code: "unavailable", Message: "maintenance"})
		objects := (Platform{}).ObjectsOf([]gate.Known{known("cp-01", &client.Server{ID: 1})})
		if all, err := p.Gone(t.Context(), objects, func(string) {}); err != nil || all[0].Gone {
			t.Errorf("%+v, %v", all, err)
		}
	})
}

func TestAProtectedServerBlocksADestroy(t *testing.T) {
	in(t, emulator.Config{}, func(t *testing.T, s *emulator.Server, p *project) {
		v := boot(t, s, p, "green-cp-01", nil)
		objects := (Platform{}).ObjectsOf([]gate.Known{known("cp-01", v)})
		if blocked, err := p.Blocked(t.Context(), objects); err != nil || len(blocked) != 0 {
			t.Errorf("%+v, %v", blocked, err)
		}
		s.SetProtection(v.ID, true)
		blocked, err := p.Blocked(t.Context(), objects)
		if err != nil || len(blocked) != 1 || !strings.Contains(blocked[0].Fix, "disable-protection") {
			t.Errorf("%+v, %v", blocked, err)
		}
	})
}

func TestFactsSayWhatHasChangedOutside(t *testing.T) {
	in(t, emulator.Config{}, func(t *testing.T, s *emulator.Server, p *project) {
		v := boot(t, s, p, "green-cp-01", labels("77777777-0000-0000-0000-000000000000"))
		off := boot(t, s, p, "green-wk-01", nil)
		s.PowerOff(off.ID)
		all := []gate.Known{known("cp-01", v), known("wk-01", off), known("wk-02", &client.Server{ID: 1})}
		all[1].MachineID.UUID = "88888888-0000-0000-0000-000000000000"
		facts, err := p.Facts(t.Context(), all)
		if err != nil || len(facts) != 3 {
			t.Fatal(facts, err)
		}
		for i, want := range []string{"running", "stopped", "absent"} {
			if want == "stopped" && !slices.Contains(facts[i].Lines("castle create green"),
				fmt.Sprintf("wk-01 (server %d) is stopped in fsn1; castle rollout green starts it",
					off.ID)) {
				t.Errorf("%q", facts[i].Lines("castle create green"))
			}
			if facts[i].Status != want || len(facts[i].Differs) != min(i, 1) {
				t.Errorf("%+v", facts[i])
			}
		}
	})
}

func TestARestartSwitchesOffAGuestThatIgnoresIt(t *testing.T) {
	for name, deaf := range map[string]bool{"obeys": false, "ignores": true} {
		t.Run(name, func(t *testing.T) {
			starts := 0
			c := emulator.Config{OnStart: func(emulator.Machine) { starts++ }}
			in(t, c, func(t *testing.T, s *emulator.Server, p *project) {
				v := boot(t, s, p, "green-cp-01", nil)
				if deaf {
					s.SetDeaf(v.ID, true)
				}
				var messages []string
				err := p.Restart(t.Context(), platform.Object{Kind: platform.Machine, VM: int(v.ID)},
					func(text string) { messages = append(messages, text) })
				now := s.Servers()[0]
				if err != nil || now.Status != "running" || starts != 2 ||
					len(messages) != 2+map[bool]int{true: 1}[deaf] {
					t.Errorf("%v, %s, %d starts, %q", err, now.Status, starts, messages)
				}
			})
		})
	}
}

func TestUnrecordedServersHaveTheClustersLabel(t *testing.T) {
	in(t, emulator.Config{}, func(t *testing.T, s *emulator.Server, p *project) {
		recorded := boot(t, s, p, "green-cp-01", labels("77777777-0000-0000-0000-000000000000"))
		boot(t, s, p, "green-wk-01", labels("88888888-0000-0000-0000-000000000000"))
		boot(t, s, p, "blue-cp-01", map[string]string{labelCluster: "blue"})
		boot(t, s, p, "green-db", nil)
		machines, _, err := p.Unrecorded(t.Context(), "green", nil, []gate.Known{known("cp-01", recorded)})
		if err != nil || len(machines) != 1 || machines[0].Name != "green-wk-01" {
			t.Errorf("%+v, %v", machines, err)
		}
		machines, _, err = p.Unrecorded(t.Context(), "green", nil, []gate.Known{
			{MachineID: gate.MachineID{ID: fmt.Sprint(recorded.ID),
				UUID: "77777777-0000-0000-0000-000000000000"}},
			{MachineID: gate.MachineID{UUID: "88888888-0000-0000-0000-000000000000"}}})
		if err != nil || len(machines) != 0 {
			t.Errorf("%+v, %v", machines, err)
		}
	})
}

// A network that a lost record leaves is found, too. Volumes of the CSI driver have the label while the
// cluster lives, and are in no state.
func TestUnrecordedResourcesAreThoseOfEveryKind(t *testing.T) {
	in(t, emulator.Config{}, func(t *testing.T, s *emulator.Server, p *project) {
		server, network := cluster(t, s, p)
		alive := []gate.Known{known("cp-01", server), {Type: "hcloud_network",
			Attributes: map[string]any{"id": fmt.Sprint(network.ID)}}}
		for want, known := range map[string][]gate.Known{"": alive,
			"green":                          alive[:1],
			"green-cp-01 pvc-detached green": nil,
			"green-cp-01 pvc-detached":       {{Address: "hcloud_network.cluster", Type: "hcloud_network"}},
		} {
			machines, _, err := p.Unrecorded(t.Context(), "green", nil, known)
			got := xslices.Map(machines, func(g platform.Guest) string { return g.Name })
			if err != nil || strings.Join(got, " ") != want {
				t.Errorf("%q, want %s, %v", got, want, err)
			}
		}
	})
}

func TestCostsAreThoseOfServersAddressesAndLoadBalancers(t *testing.T) {
	in(t, emulator.Config{}, func(t *testing.T, s *emulator.Server, p *project) {
		texts := func(all map[string]string) cty.Value {
			values := map[string]cty.Value{}
			for k, v := range all {
				values[k] = cty.StringVal(v)
			}
			return cty.MapVal(values)
		}
		v := gate.Values{"types": texts(map[string]string{"cp-01": "cx33@fsn1", "wk-01": "cx43@nbg1",
			"wk-02": "cx43@nbg1", "wk-03": "cx99@nbg1"}),
			"balancers": texts(map[string]string{"a": "lb11@fsn1"})}
		c, err := p.Costs(t.Context(), v)
		if err != nil {
			t.Fatal(err)
		}
		// 0.0104 + 2 × 0.0192 + 4 × 0.0008 + 0.0120, and 730 hours of it.
		if c.Currency != "EUR" || c.Hourly != 0.064 || c.Monthly != 46.72 || len(c.Items) != 5 ||
			c.Items[3] != (platform.CostItem{What: "server cx33 in fsn1", Count: 1, Hourly: 0.0104,
				Monthly: 7.592}) || !slices.Equal(c.Unpriced, []string{"server cx99 in nbg1"}) {
			t.Errorf("%+v", c)
		}
		s.Fail(emulator.Fault{Path: "pricing", Status: 503, Code: "unavailable", Message: "maintenance"})
		if c, err := p.Costs(t.Context(), v); c != nil || err == nil {
			t.Errorf("%+v, %v", c, err)
		}
	})
}

func TestDoctorTellsWhoseServersTheTokenReaches(t *testing.T) {
	in(t, emulator.Config{}, func(t *testing.T, s *emulator.Server, p *project) {
		boot(t, s, p, "green-cp-01", labels("77777777-0000-0000-0000-000000000000"))
		if f := p.others(t.Context(), "green"); len(f) != 1 || f[0].Colour != finding.Green {
			t.Errorf("%+v", f)
		}
		for _, name := range []string{"a", "b", "c", "d"} {
			boot(t, s, p, name, map[string]string{labelCluster: "blue"})
		}
		f := p.others(t.Context(), "green")
		if len(f) != 1 || f[0].Colour != finding.Yellow || !strings.HasSuffix(f[0].Text, "; and 1 more") ||
			!strings.Contains(f[0].Text, `"a" in fsn1, running, of the cluster blue`) {
			t.Errorf("%+v", f)
		}
	})
}

// A limit of requests is waited for, and is no refusal for ever.
func TestALimitOfRequestsIsWaitedFor(t *testing.T) {
	in(t, emulator.Config{}, func(t *testing.T, s *emulator.Server, p *project) {
		p.api = client.NewClient(client.WithEndpoint("http://api.test/v1"), client.WithToken("writes"),
			client.WithHTTPClient(&http.Client{Transport: transport{s}}), client.WithRetryOpts(retries))
		limited := func(lasts time.Duration) {
			s.Fail(emulator.Fault{Status: http.StatusTooManyRequests, Code: "rate_limit_exceeded",
				Message: "limit of 3600 requests per hour reached", Lasts: lasts})
		}
		limited(12 * time.Second)
		begin := time.Now()
		if _, err := p.list(t.Context(), servers()); err != nil || time.Since(begin) < 12*time.Second {
			t.Errorf("%v after %s", err, time.Since(begin))
		}
		limited(time.Minute)
		_, err := p.list(t.Context(), servers())
		again, is := errors.AsType[interface {
			error
			Transient() bool
		}](err)
		if !is || !again.Transient() {
			t.Errorf("%v", err)
		}
	})
}

func TestTheGuardTellsOwnFromForeignWhileTerraformCreates(t *testing.T) {
	in(t, emulator.Config{}, func(t *testing.T, s *emulator.Server, p *project) {
		c := greens(p)
		look := func() gate.Reading {
			reading, err := c.look(t.Context(), gate.Known{Address: node("cp-01"), Type: typeServer})
			if err != nil {
				t.Fatal(err)
			}
			return reading
		}
		if r := look(); r.Own || r.Foreign != nil {
			t.Errorf("before: %+v", r)
		}
		v := boot(t, s, p, "green-cp-01", nil)
		if r := look(); r.Own || r.Foreign == nil {
			t.Errorf("somebody else's: %+v", r)
		}
		gone, _, err := p.api.Server.DeleteWithResult(t.Context(), v)
		if err != nil || p.api.Action.WaitFor(t.Context(), gone.Action) != nil {
			t.Fatal(err)
		}
		boot(t, s, p, "green-cp-01", labels(UUIDOf(key, typeServer, "green-cp-01")))
		if r := look(); !r.Own || r.Foreign != nil {
			t.Errorf("its own: %+v", r)
		}
	})
}
