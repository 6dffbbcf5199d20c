package proxmox

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/platform"
)

// Facts reads how the machines among known are now, with one list of guests and one request for each.
func (s Search) Facts(ctx context.Context, known []gate.Known) ([]platform.Fact, error) {
	known = slices.DeleteFunc(slices.Clone(known), func(k gate.Known) bool { return machineOf(k).VM == 0 })
	if len(known) == 0 {
		return nil, nil
	}
	guests, err := s.Client.Guests(ctx)
	all := make([]platform.Fact, len(known))
	done := make(chan struct{}, len(known))
	for i, k := range known {
		go func() {
			all[i] = factOf(ctx, s.Client, guests, k)
			done <- struct{}{}
		}()
	}
	for range known {
		<-done
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return all, err
}

// factOf compares a machine with its state. Where somebody else's has its id, nothing else matters.
func factOf(ctx context.Context, c *Client, guests []Guest, k gate.Known) platform.Fact {
	m := machineOf(k)
	_, key, _ := strings.Cut(k.Address, `["`)
	f := platform.Fact{Key: cmp.Or(strings.TrimSuffix(key, `"]`), m.Name), ID: m.VM, Status: "unknown"}
	differs := func(format string, args ...any) { f.Differs = append(f.Differs, fmt.Sprintf(format, args...)) }
	i := slices.IndexFunc(guests, func(g Guest) bool { return g.ID == m.VM })
	if i < 0 {
		switch taken, err := c.Taken(ctx, m.VM); {
		case err != nil:
			differs("cannot be read: %v", err)
		case taken:
			differs("is invisible to this API token; %s", auditFix(m.VM))
		default:
			f.Status = "absent"
			differs("does not exist any more")
		}
		return f
	}
	g := guests[i]
	f.Node, f.Status = g.Node, cmp.Or(g.Status, f.Status)
	if !g.isVM() {
		differs("is another guest: %s", g)
		return f
	}
	g, err := c.configured(ctx, g)
	if err != nil {
		differs("on node %s cannot be read: %v", g.Node, err)
		return f
	}
	f.UUID, f.Disks, f.Cards = g.UUID(), g.Config.disks(), g.Config.cards()
	if same, proved := g.matches(m); proved && !same {
		differs("is not castle's machine but %s: expected the %s", g, otherUUID(m, g))
		return f
	}
	if home := home(k); home != "" && home != g.Node {
		differs("has moved from node %s to node %s; %s", home, g.Node, stay(f.Key, g.Node))
	}
	compareDisks(g.Config, readAttributes(k.Attributes), differs)
	compareCards(f.Cards, m.MACs, differs)
	return f
}

// stay is how a machine that has moved stays where it is.
func stay(key, node string) string {
	return fmt.Sprintf("to keep it there, set node_name = %q for %s in terraform.tfvars", node, key)
}

func compareDisks(c Config, a attributes, differs func(string, ...any)) {
	now, expected := c.disks(), map[string]bool{}
	for _, d := range a.Disks {
		was := d.Storage + ":" + d.Path
		expected[d.Interface] = true
		switch is := now[d.Interface]; {
		case d.Interface == "" || d.Path == "" || is == was:
		case is != "":
			differs("has the disk %s as %s, and castle has made %s there", is, d.Interface, was)
		default:
			where := "none of its options has it"
			for _, option := range sortedKeys(c) {
				if c.volume(option) == was {
					where = "it is " + option
				}
			}
			differs("has lost its disk %s (%s): %s", d.Interface, was, where)
		}
	}
	for _, name := range sortedKeys(now) {
		if len(expected) > 0 && !expected[name] {
			differs("has a disk that castle has not made: %s (%s)", name, now[name])
		}
	}
}

func compareCards(now map[string]string, were []string, differs func(string, ...any)) {
	expected := map[string]bool{}
	for _, mac := range were {
		expected[strings.ToUpper(mac)] = true
	}
	for _, name := range sortedKeys(now) {
		if len(were) > 0 && !expected[now[name]] {
			differs("has a network card that castle has not made: %s (%s)", name, now[name])
		}
		delete(expected, now[name])
	}
	for _, mac := range sortedKeys(expected) {
		differs("has lost its network card %s", mac)
	}
}
