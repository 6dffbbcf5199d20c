package hcloud

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	client "github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/siderolabs/gen/xslices"

	emulator "github.com/ephemeral-castle/castle/internal/emulator/hcloud"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/platform"
)

// derived are the labels of castle's own.
func derived(typ, name string) map[string]string { return labels(UUIDOf(key, typ, name)) }

// must returns what a request has made.
func must[T any](t *testing.T) func(T, *client.Response, error) T {
	return func(made T, _ *client.Response, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
}

// cluster makes a server in a network, a load balancer and two volumes of its controllers, and what belongs
// to others: a server and a network with the cluster's name, and a load balancer of another cluster.
func cluster(t *testing.T, s *emulator.Server, p *project) (server *client.Server, network *client.Network) {
	t.Helper()
	ctx, uid := t.Context(), map[string]string{labelService: "5a0c7e0e-1111-4222-8333-444455556666"}
	block := func(text string) *net.IPNet { return mustCIDR(t, text) }
	network = must[*client.Network](t)(p.api.Network.Create(ctx, client.NetworkCreateOpts{Name: "green",
		IPRange: block("10.0.0.0/16"), Labels: derived("hcloud_network", "green"),
		Subnets: []client.NetworkSubnet{{Type: client.NetworkSubnetTypeCloud, IPRange: block("10.0.1.0/24"),
			NetworkZone: client.NetworkZoneEUCentral}}}))
	must[*client.Network](t)(p.api.Network.Create(ctx, client.NetworkCreateOpts{Name: "green-office",
		IPRange: block("10.9.0.0/16")}))
	server = boot(t, s, p, "green-cp-01", derived(typeServer, "green-cp-01"))
	balancer := func(name string, in *client.Network) {
		must[client.LoadBalancerCreateResult](t)(p.api.LoadBalancer.Create(ctx, client.LoadBalancerCreateOpts{
			Name: name, Labels: uid, LoadBalancerType: &client.LoadBalancerType{Name: "lb11"},
			Location: &client.Location{Name: "fsn1"}, Network: in}))
	}
	balancer("a1b2", network)
	balancer("of-another-cluster", nil)
	volume := func(name string, on *client.Server, labels map[string]string) {
		labels[labelManagedBy] = managedByCSI
		o := client.VolumeCreateOpts{Name: name, Size: 10, Server: on, Labels: labels}
		if on == nil {
			o.Location = &client.Location{Name: "fsn1"}
		}
		must[client.VolumeCreateResult](t)(p.api.Volume.Create(ctx, o))
	}
	volume("pvc-attached", server, map[string]string{})
	volume("pvc-detached", nil, labels(UUIDOf(key, "hcloud_volume", "green")))
	volume("pvc-of-another-cluster", nil, map[string]string{})
	boot(t, s, p, "green-db", nil)
	s.Idle()
	return server, network
}

// names lists what is in the project.
func names(t *testing.T, p *project) []string {
	t.Helper()
	all, err := p.list(t.Context(), kinds)
	if err != nil {
		t.Fatal(err)
	}
	all = slices.DeleteFunc(all, func(r resource) bool {
		return r.kind.typ == "hcloud_primary_ip" ||
			r.kind.typ == "hcloud_snapshot"
	})
	return xslices.Map(all, func(r resource) string { return r.name })
}

var foreign = []string{"green-db", "of-another-cluster", "pvc-of-another-cluster", "green-office"}

// surveyed is a nuke of green with what it lists.
func surveyed(t *testing.T, p *project, signs platform.Signs) (*nuke, []platform.Guest) {
	t.Helper()
	signs.Cluster = "green"
	n := &nuke{project: p, signs: signs, note: func(any, string) error { return nil }}
	guests, err := n.Survey(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return n, guests
}

func TestANukeDeletesWhatIsLabelledAndNothingElse(t *testing.T) {
	in(t, emulator.Config{}, func(t *testing.T, s *emulator.Server, p *project) {
		server, _ := cluster(t, s, p)
		settle(t, p, []gate.Known{known("cp-01", server)}, gate.Delete)
		n, guests := surveyed(t, p, platform.Signs{Keys: map[string]string{"green": key}})
		if len(guests) != 5 {
			t.Fatalf("%v", guests)
		}
		_, remarks, err := n.Disks(t.Context(), nil)
		if err != nil || len(remarks) != 2 || !strings.Contains(remarks[0], `"green-db" in fsn1`) {
			t.Errorf("%q, %v", remarks, err)
		}
		for _, g := range guests {
			if remains, err := n.Remove(t.Context(), g); err != nil || !remains.Gone || !g.Goes() {
				t.Errorf("%s: %+v, %v", g, remains, err)
			}
		}
		if left := names(t, p); !slices.Equal(left, foreign) {
			t.Errorf("%q is left", left)
		}
		if remaining, err := n.Remaining(t.Context()); err != nil || len(remaining) != 0 {
			t.Errorf("%v, %v", remaining, err)
		}
	})
}

// Nobody has settled the volumes: a nuke asks no cluster, which may want to keep its data.
func TestANukeKeepsVolumesWhosePolicyIsUnknown(t *testing.T) {
	in(t, emulator.Config{}, func(t *testing.T, s *emulator.Server, p *project) {
		cluster(t, s, p)
		n, guests := surveyed(t, p, platform.Signs{Keys: map[string]string{"green": key}})
		for _, g := range guests {
			if !g.Goes() {
				continue
			}
			if remains, err := n.Remove(t.Context(), g); err != nil || !remains.Gone {
				t.Errorf("%s: %+v, %v", g, remains, err)
			}
		}
		// Also the one whose server is gone is named.
		left, err := n.Remaining(t.Context())
		if err != nil || len(left) != 2 || left[0].Name != "pvc-attached" || left[1].Name != "pvc-detached" {
			t.Fatalf("%v, %v", left, err)
		}
		for _, g := range left {
			fix := fmt.Sprintf("hcloud volume add-label --overwrite %d castle_reclaim=Delete", g.ID)
			if g.Goes() || !strings.Contains(g.String(), fix) {
				t.Errorf("%s", g)
			}
		}
	})
}

// Labels can be copied, and others may use what is the cluster's.
func TestANukeRefusesWhatIsNotTheClustersAlone(t *testing.T) {
	ofAnother := platform.Signs{Keys: map[string]string{"green": "another key"}}
	for name, test := range map[string]struct {
		signs  platform.Signs
		change func(t *testing.T, s *emulator.Server, p *project, v *client.Server, n *client.Network)
		what   string
		why    string
	}{
		"uuid of another key": {ofAnother, nil, "server", "does not derive from the key"},
		"no uuid": {platform.Signs{}, func(t *testing.T, _ *emulator.Server, p *project, v *client.Server,
			_ *client.Network) {
			must[*client.Server](t)(p.api.Server.Update(t.Context(), v, client.ServerUpdateOpts{
				Labels: map[string]string{labelCluster: "green"}}))
		}, "server", "has no label castle_uuid"},
		"protected": {platform.Signs{}, func(_ *testing.T, s *emulator.Server, _ *project, v *client.Server,
			_ *client.Network) {
			s.SetProtection(v.ID, true)
		}, "server", "disable-protection"},
		"volume of a protected server": {platform.Signs{}, func(_ *testing.T, s *emulator.Server, _ *project,
			v *client.Server, _ *client.Network) {
			s.SetProtection(v.ID, true)
		}, "volume", "which stays, works with it"},
		"a network with another server": {platform.Signs{}, func(t *testing.T, s *emulator.Server, p *project,
			_ *client.Server, n *client.Network) {
			other, _, err := p.api.Server.GetByName(t.Context(), "green-db")
			if err == nil {
				_, _, err = p.api.Server.AttachToNetwork(t.Context(), other,
					client.ServerAttachToNetworkOpts{Network: n})
			}
			if err != nil {
				t.Fatal(err)
			}
			s.Idle()
		}, "network", "which is not the cluster's, works with it"},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, emulator.Config{}, func(t *testing.T, s *emulator.Server, p *project) {
				server, network := cluster(t, s, p)
				if test.change != nil {
					test.change(t, s, p, server, network)
				}
				_, guests := surveyed(t, p, test.signs)
				isIt := func(g platform.Guest) bool { return strings.HasPrefix(g.Called, test.what+" ") }
				i := slices.IndexFunc(guests, isIt)
				if i < 0 || !strings.Contains(guests[i].String(), test.why) {
					t.Errorf("%v", guests)
				}
			})
		})
	}
}

// Another repository may have a cluster of this name in the same project, whose driver labels volumes, too.
func TestANukeRefusesVolumesOfAnotherClusterOfItsName(t *testing.T) {
	in(t, emulator.Config{}, func(t *testing.T, s *emulator.Server, p *project) {
		cluster(t, s, p)
		_, guests := surveyed(t, p, platform.Signs{Keys: map[string]string{"green": "another key"}})
		found := 0
		for _, g := range guests {
			if strings.HasPrefix(g.Called, "volume ") {
				found++
				if g.Goes() {
					t.Errorf("%s goes", g)
				}
			}
		}
		if found != 2 {
			t.Errorf("%d volumes: %v", found, guests)
		}
	})
}

func TestANukeRefusesWhatHasChangedSinceItsList(t *testing.T) {
	in(t, emulator.Config{}, func(t *testing.T, s *emulator.Server, p *project) {
		v, _ := cluster(t, s, p)
		n, guests := surveyed(t, p, platform.Signs{})
		must[*client.Server](t)(p.api.Server.Update(t.Context(), v, client.ServerUpdateOpts{Name: "mine"}))
		if _, err := n.Remove(t.Context(), guests[0]); err == nil ||
			!strings.Contains(err.Error(), "has changed since it was listed") {
			t.Errorf("%v", err)
		}
		if len(names(t, p)) != 9 {
			t.Errorf("something was deleted: %q", names(t, p))
		}
	})
}

// Before a destroy, what the controllers have made is deleted, with the servers switched off.
func TestADestroyDeletesWhatControllersHaveMade(t *testing.T) {
	in(t, emulator.Config{}, func(t *testing.T, s *emulator.Server, p *project) {
		v, network := cluster(t, s, p)
		state := []gate.Known{known("cp-01", v), {Address: "hcloud_network.cluster", Type: "hcloud_network",
			Attributes: map[string]any{"id": fmt.Sprint(network.ID)}}}
		var reports []string
		sweep := func(ctx context.Context) error {
			return greens(p).sweep(ctx, state, func(text string) { reports = append(reports, text) })
		}
		lb, _, err := p.api.LoadBalancer.GetByName(t.Context(), "a1b2")
		if err != nil {
			t.Fatal(err)
		}
		protect := func(on bool) {
			action, _, err := p.api.LoadBalancer.ChangeProtection(t.Context(), lb,
				client.LoadBalancerChangeProtectionOpts{Delete: &on})
			if err = p.ended(t.Context(), action, err); err != nil {
				t.Fatal(err)
			}
		}
		protect(true)
		if err := sweep(t.Context()); err == nil || !strings.Contains(err.Error(), "disable-protection") ||
			s.Servers()[0].Status != "running" {
			t.Errorf("%v", err)
		}
		protect(false)
		settle(t, p, state, gate.Delete)
		reports = nil
		if err := sweep(t.Context()); err != nil || len(reports) != 3 {
			t.Errorf("%v, %q", err, reports)
		}
		left, want := names(t, p), append([]string{"green-cp-01"}, foreign...)
		if want = slices.Insert(want, 4, "green"); !slices.Equal(left, want) {
			t.Errorf("%q is left", left)
		}
		if s.Servers()[0].Status != "off" || s.Servers()[1].Status != "running" {
			t.Errorf("%+v", s.Servers())
		}
		if err := sweep(t.Context()); err != nil || len(reports) != 3 {
			t.Errorf("again: %v, %q", err, reports)
		}
	})
}

// settle records a policy with each volume of the cluster.
func settle(t *testing.T, p *project, state []gate.Known, policy string) (all []gate.Volume) {
	t.Helper()
	all, err := greens(p).volumes(t.Context(), state)
	for _, v := range all {
		if err == nil {
			err = v.Settle(t.Context(), policy)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// A destroy deletes no volume that it has not settled before: nobody may have known of it, and its data.
func TestADestroyKeepsVolumesThatAreToStay(t *testing.T) {
	for name, test := range map[string]struct {
		change func(t *testing.T, p *project, v *client.Volume, state []gate.Known)
		kept   bool // it stays when the cluster is gone, and is no obstacle to the next one
	}{
		"with the policy Retain": {func(t *testing.T, p *project, _ *client.Volume, state []gate.Known) {
			settle(t, p, state, gate.Retain)
		}, true},
		"made after the policies were read": {func(*testing.T, *project, *client.Volume, []gate.Known) {
		}, false},
		"protected, with the policy Delete": {func(t *testing.T, p *project, v *client.Volume,
			state []gate.Known) {
			settle(t, p, state, gate.Delete)
			on := true
			action, _, err := p.api.Volume.ChangeProtection(t.Context(), v,
				client.VolumeChangeProtectionOpts{Delete: &on})
			if err = p.ended(t.Context(), action, err); err != nil {
				t.Fatal(err)
			}
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, emulator.Config{}, func(t *testing.T, s *emulator.Server, p *project) {
				server, _ := cluster(t, s, p)
				state := []gate.Known{known("cp-01", server)}
				detached, _, err := p.api.Volume.GetByName(t.Context(), "pvc-detached")
				if err != nil {
					t.Fatal(err)
				}
				test.change(t, p, detached, state)
				var reports []string
				if err := greens(p).sweep(t.Context(), state, func(text string) {
					reports = append(reports, text)
				}); err != nil {
					t.Fatal(err)
				}
				if !slices.Contains(names(t, p), "pvc-detached") ||
					!slices.ContainsFunc(reports, func(text string) bool {
						return strings.HasPrefix(text, "keeps volume ") && strings.HasSuffix(text, "10 GB")
					}) {
					t.Errorf("%q, left: %q", reports, names(t, p))
				}
				left, _, err := p.Unrecorded(t.Context(), "green", nil, nil)
				i := slices.IndexFunc(left, func(g platform.Guest) bool { return g.Name == "pvc-detached" })
				if err != nil || i < 0 || left[i].Kept != test.kept {
					t.Errorf("%+v, %v", left, err)
				}
				_, guests := surveyed(t, p, platform.Signs{})
				i = slices.IndexFunc(guests, func(g platform.Guest) bool { return g.Name == "pvc-detached" })
				if i < 0 || guests[i].Goes() {
					t.Errorf("a nuke: %v", guests)
				}
			})
		})
	}
}

// A destroy that failed or was killed has labelled volumes. While the cluster runs on, their policies may
// change, and what it has said once is not known any more.
func TestAPolicyIsOldWhileTheClusterRuns(t *testing.T) {
	in(t, emulator.Config{}, func(t *testing.T, s *emulator.Server, p *project) {
		state := []gate.Known{}
		for i, role := range []string{"controlplane", "controlplane", "controlplane", "worker"} {
			name := fmt.Sprintf("cp-%02d", i+1)
			all := derived(typeServer, "green-"+name)
			all[labelRole] = role
			state = append(state, known(name, boot(t, s, p, "green-"+name, all)))
		}
		must[client.VolumeCreateResult](t)(p.api.Volume.Create(t.Context(), client.VolumeCreateOpts{
			Name: "pvc-1", Size: 10, Location: &client.Location{Name: "fsn1"}, Labels: map[string]string{
				labelManagedBy: managedByCSI, labelUUID: UUIDOf(key, typeVolume, "green"),
				labelCluster: "green"}}))
		s.Idle()
		policy := func(settled string) string {
			settle(t, p, state, settled)
			all, err := greens(p).volumes(t.Context(), state)
			if err != nil || len(all) != 1 {
				t.Fatal(all, err)
			}
			return all[0].Policy
		}
		if got := policy(gate.Delete); got != "" {
			t.Errorf("the cluster runs: %q", got)
		}
		// A majority of the control planes is off, as after a kill: there has been no API server since.
		for _, k := range state[:2] {
			s.PowerOff(idOf(k.Attributes))
		}
		if got := policy(gate.Delete); got != gate.Delete {
			t.Errorf("the cluster is off: %q", got)
		}
		if got := policy(gate.Retain); got != gate.Retain {
			t.Errorf("it is to stay: %q", got)
		}
	})
}

func TestAVolumeIsNamedWithItsSizeAndItsClaim(t *testing.T) {
	in(t, emulator.Config{}, func(t *testing.T, s *emulator.Server, p *project) {
		made := must[client.VolumeCreateResult](t)(p.api.Volume.Create(t.Context(), client.VolumeCreateOpts{
			Name: "pvc-1", Size: 12, Location: &client.Location{Name: "fsn1"}, Labels: map[string]string{
				labelManagedBy: managedByCSI, labelUUID: UUIDOf(key, typeVolume, "green"),
				labelCluster: "green", "pvc-namespace": "shop", "pvc-name": "data"}}))
		s.Idle()
		want := gate.Volume{PersistentVolume: fmt.Sprintf("csi.hetzner.cloud/%d", made.Volume.ID),
			What: fmt.Sprintf(`volume %d "pvc-1", 12 GB, of the claim "shop/data"`, made.Volume.ID)}
		all := settle(t, p, nil, gate.Delete)
		if len(all) != 1 || all[0].What != want.What || all[0].PersistentVolume != want.PersistentVolume ||
			all[0].Policy != "" {
			t.Errorf("%+v", all)
		}
		if again := settle(t, p, nil, gate.Retain); again[0].Policy != gate.Delete {
			t.Errorf("a killed run has settled it: %+v", again)
		}
		if again := settle(t, p, nil, gate.Delete); again[0].Policy != gate.Retain {
			t.Errorf("%+v", again)
		}
	})
}
