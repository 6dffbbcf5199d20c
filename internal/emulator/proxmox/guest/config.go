package guest

import (
	"cmp"
	"errors"
	"maps"
	"strings"

	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/failure"
	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/option"
	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/rpc"
	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/storage"
)

// change is a set of valid options that wait to be applied.
type change struct {
	plain   map[string]string
	drives  map[string]drivePlan
	deletes []string
	force   bool // deletes volumes, too
}

// change checks every parameter that is a configuration option.
func (s *Guests) change(c *rpc.Call, g *Guest) (change, error) {
	ch := change{map[string]string{}, map[string]drivePlan{}, option.SplitList(c.Get("delete")),
		c.Flag("force")}
	for _, name := range ch.deletes {
		if option.KindOf(name) == option.Unknown && !option.IsUnused(name) {
			return ch, failure.BadParameter("delete", "unknown option '%s'", name)
		}
	}
	for _, key := range sortedKeys(c.Request.Params) {
		var err error
		switch value := c.Get(key); option.KindOf(key) {
		case option.Argument:
		case option.Drive:
			ch.drives[key], err = s.planDrive(c, g.Node, key, value)
		case option.NIC:
			ch.plain[key], err = option.Card(key, value, g.Config[key])
		default:
			ch.plain[key], err = option.Plain(key, value)
		}
		if err != nil {
			return ch, err
		}
	}
	return ch, nil
}

// apply changes the guest's options, or keeps what waits for its start. A drive that is detached or replaced
// stays as unusedN, unless force deletes its volume; deleting an unusedN frees it, and attaching its volume
// removes the unusedN.
func (ch change) apply(s *Guests, g *Guest) {
	if !g.Running {
		g.settle(s)
	}
	for _, key := range ch.deletes {
		volume, _, _ := strings.Cut(g.Config[key], ",")
		switch {
		case option.IsDrive(key) && ch.force && storage.OwnerOf(volume) == g.ID && g.follows(key, ""):
			s.disks.Free(g.Node, volume)
			g.Set(key, "")
		case option.IsUnused(key):
			s.disks.Free(g.Node, g.Config[key])
		}
		g.assign(s, key, "")
	}
	for _, key := range sortedKeys(ch.plain) {
		g.assign(s, key, ch.plain[key])
	}
	for _, key := range sortedKeys(ch.drives) {
		plan := ch.drives[key]
		g.assign(s, key, plan.attach(s, g))
		maps.DeleteFunc(g.Config, func(other, volume string) bool {
			return option.IsUnused(other) && volume == plan.volume
		})
	}
}

func (g *Guest) detach(s *Guests, key string) {
	volume, _, _ := strings.Cut(g.Config[key], ",")
	delete(g.Config, key)
	switch {
	case storage.OwnerOf(volume) != g.ID:
		return
	case strings.Contains(volume, "cloudinit"):
		s.disks.Free(g.Node, volume)
		return
	}
	g.addUnused(volume)
}

// update changes the configuration without a task.
func (s *Guests) update(c *rpc.Call, g *Guest) (any, error) {
	if err := s.checkOptions(c, g.ID, ""); err != nil {
		return nil, err
	}
	if err := s.checkDrives(c, g); err != nil {
		return nil, err
	}
	if digest := c.Get("digest"); digest != "" && digest != g.digest() {
		return nil, failure.Internal("detected modified configuration - file changed by other user? " +
			"Try again.")
	}
	if err := cmp.Or(g.locked(), s.checkBalloon(c, g)); err != nil {
		return nil, err
	}
	change, err := s.change(c, g)
	if err != nil {
		return nil, err
	}
	for _, key := range change.deletes {
		volume, _, _ := strings.Cut(g.Config[key], ",")
		if (change.force || option.IsUnused(key)) && g.usedBySnapshot(volume) {
			return nil, failure.Internal("unable to delete '%s' - volume is still in use (snapshot?)", volume)
		}
	}
	unplugged, card := change.unplugged(s, g), g.Config["net0"]
	change.apply(s, g)
	if hook := s.config.OnNetwork; hook != nil && g.Running && g.Config["net0"] != card {
		v := g.View()
		c.After = func() { hook(v) }
	}
	return nil, unplugged
}

func (s *Guests) resize(c *rpc.Call, g *Guest) (any, error) {
	if err := g.locked(); err != nil {
		return nil, err
	}
	key := c.Get("disk")
	want, relative := strings.CutPrefix(c.Get("size"), "+")
	size, ok := option.ParseSize(want)
	volume, _, _ := strings.Cut(g.Config[key], ",")
	switch {
	case !ok:
		return nil, failure.BadParameter("size", "value does not match the regex pattern\n")
	case volume == "":
		return nil, failure.Internal("disk '%s' does not exist", key)
	case strings.Contains(g.Config[key], "media=cdrom"):
		return nil, failure.Internal("you can't resize a cdrom")
	}
	return c.Launch("resize", g.ID, func(*rpc.Task) error {
		d := s.disks.Get(g.Node, volume)
		if d == nil {
			return failure.Internal("Could not determine current size of volume '%s'", volume)
		}
		if relative {
			size += d.Size
		}
		if size < d.Size {
			return errors.New("shrinking disks is not supported")
		}
		d.Size = size
		g.Config[key] = option.Resize(g.Config[key], size)
		return nil
	}).UPID, nil
}
