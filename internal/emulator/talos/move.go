package talos

import (
	"fmt"
	"net/netip"
	"slices"
)

// InLine returns the addresses of the machines that may carry the virtual
// address, its holder first; none while nobody holds it.
func (f *Fleet) InLine(virtual string) []string {
	f.mu.Lock()
	defer f.unlock()
	_, e := f.decided(virtual)
	if e == nil {
		return nil
	}
	var all []string
	for _, c := range e.line {
		if !c.gone {
			all = append(all, c.machine.Address)
		}
	}
	return all
}

// MoveVirtualIP takes the virtual address from its holder, which goes to the end
// of the line, and gives it to another candidate: the machine with that address
// or hostname, or the next in line if to is empty.
func (f *Fleet) MoveVirtualIP(virtual, to string) error {
	f.mu.Lock()
	defer f.unlock()
	cluster, e := f.decided(virtual)
	if e == nil {
		return fmt.Errorf("no machine has the virtual address %s", virtual)
	}
	i := slices.IndexFunc(e.line, func(c *candidate) bool {
		return c != e.holder && !c.gone && (to == "" || c.machine == f.find(to))
	})
	if i < 0 {
		return fmt.Errorf("no other control plane stands in line for %s", virtual)
	}
	next := e.line[i]
	e.line = slices.Concat([]*candidate{next}, slices.Delete(slices.Delete(e.line, i, i+1), 0, 1), []*candidate{e.holder})
	f.settle(cluster)
	return nil
}

// decided finds the election that has given the virtual address to somebody.
func (f *Fleet) decided(virtual string) (*etcdCluster, *election) {
	address, err := netip.ParseAddr(virtual)
	if err != nil {
		return nil, nil
	}
	for _, m := range f.machines {
		if m.etcd == nil {
			continue
		}
		for _, e := range m.etcd.cluster.elections {
			if e.address == address && e.holder != nil {
				return m.etcd.cluster, e
			}
		}
	}
	return nil, nil
}
