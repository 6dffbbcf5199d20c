package proxmox

import (
	"fmt"
	"slices"
	"strings"
)

// machine judges by the id, which the whole cluster knows whoever asks, and by
// the hardware address, if the id is taken.
func (l *look) machine(t Trace) {
	taken, err := l.Taken(l.ctx, t.VM)
	if err != nil {
		l.add(t, false, unproved(err), "")
		return
	}
	if !taken {
		l.add(t, true, "", "")
		return
	}
	guests, err := l.Guests(l.ctx)
	if err != nil {
		l.add(t, false, unproved(err), "")
		return
	}
	i := slices.IndexFunc(guests, func(g Guest) bool { return g.ID == t.VM })
	if i < 0 {
		l.add(t, false, "a guest that this API token may not see has this id", fmt.Sprintf("give the token VM.Audit on /vms/%d to see what it is", t.VM))
		return
	}
	g := guests[i].seen()
	if g.Kind != "qemu" {
		l.others[t.VM] = nil // a container's disks are called the same; what it uses is not asked
		l.add(t, true, "the id belongs to another guest now: "+g.describe(), "")
		return
	}
	config, err := l.Config(l.ctx, g.Node, t.VM)
	if err != nil {
		l.add(t, false, unproved(err), "")
		return
	}
	g = g.complete(config)
	same, proved := t.is(g)
	if proved && !same {
		l.others[t.VM] = config
		l.add(t, true, "the id belongs to another machine now: "+g.describe(), "")
		return
	}
	t.Node = g.Node
	if !proved && g.Name != t.Name {
		l.add(t, false, "not proved: the state had no hardware address to tell it from "+g.describe(), "")
		return
	}
	way := g.release()
	if way == "" {
		way = fmt.Sprintf("as root on node %s: qm stop %d && qm destroy %d --purge", g.Node, t.VM, t.VM)
	}
	l.add(t, false, "still there: "+g.describe(), way)
}

// is reports whether a guest is the machine of a trace, and whether something
// proves that either way: the uuid, else a hardware address.
func (t Trace) is(g guest) (same, proved bool) {
	switch {
	case t.UUID != "" && g.uuid != "":
		return t.UUID == g.uuid, true
	case len(t.MACs) > 0 && len(g.macs) > 0:
		return slices.ContainsFunc(t.MACs, func(mac string) bool { return slices.Contains(g.macs, strings.ToUpper(mac)) }), true
	}
	return false, false
}

// disk judges a disk by the lists that were read; where one could not be read,
// that is told of by itself.
func (l *look) disk(t Trace) {
	other, taken := l.others[t.VM]
	i := slices.IndexFunc(l.disks, func(d seenDisk) bool { return d.is(t) })
	switch there := i >= 0; {
	case there && taken && other.uses(t.Volume):
		l.add(t, true, fmt.Sprintf("guest %d, another one, has a disk of this name now", t.VM), "")
	case there:
		l.add(t, false, "still there", l.disks[i].free())
	case len(l.blind) > 0:
		l.add(t, false, "not proved: not everything could be asked", "")
	default:
		l.add(t, true, "", "")
	}
}

// uses reports whether a machine has this volume.
func (c Config) uses(volume string) bool {
	for _, value := range c {
		if first, _, _ := strings.Cut(value, ","); first == volume {
			return true
		}
	}
	return false
}

// file judges an image, a snippet or another file.
func (l *look) file(t Trace) {
	storage := storageOf(t.Volume)
	volumes, err := l.Volumes(l.ctx, t.Node, storage, contentOf(t.Volume), 0)
	if err != nil {
		l.add(t, false, unproved(err), "")
		return
	}
	if slices.Contains(volumes, t.Volume) {
		l.add(t, false, "still there", free(t))
		return
	}
	switch sees, err := l.allowed(l.ctx, "/storage/"+storage, "Datastore.Allocate"); {
	case err != nil:
		l.add(t, false, unproved(err), "")
	case !sees:
		l.add(t, false, "not proved: this API token may not see all files there", "give the token Datastore.Allocate on /storage/"+storage)
	default:
		l.add(t, true, "", "")
	}
}

// free is how a disk is removed by hand. On shared storage it may be another
// Proxmox cluster's, which has a machine with this id, too.
func (d seenDisk) free() string {
	if d.shared {
		return fmt.Sprintf("unless another Proxmox cluster that shares %s has a machine %d, %s", storageOf(d.Volume), d.VM, free(d.Trace))
	}
	return free(d.Trace)
}

func unproved(err error) string { return "not proved: " + err.Error() }

// free is how a volume is removed by hand.
func free(t Trace) string { return fmt.Sprintf("as root on node %s: pvesm free %s", t.Node, t.Volume) }
