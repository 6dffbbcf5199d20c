package guest

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/failure"
	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/option"
	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/rpc"
	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/storage"
)

var newDisk = regexp.MustCompile(`^([^:/]+):(\d+(?:\.\d+)?)$`)

// imageSize is the virtual size of every imported image.
const imageSize = 8 << 30

// drivePlan is a valid drive option before anything is created.
type drivePlan struct {
	volume    string // an existing volume, none or cdrom; empty for a new one
	storage   storage.Storage
	disk      storage.Disk // the new volume
	cloudInit bool
	options   option.Properties
}

// planDrive validates a drive option. Its errors are those of a real node before it starts a worker.
func (s *Guests) planDrive(c *rpc.Call, node, key, value string) (p drivePlan, err error) {
	p.options = option.Parse(value, "file")
	volume := cmp.Or(p.options.Take("file"), p.options.Take("volume"))
	source := p.options.Take("import-from")
	id, name, _ := strings.Cut(volume, ":")
	found := newDisk.FindStringSubmatch(volume)
	p.cloudInit = name == "cloudinit"
	switch {
	case volume == "":
		return p, failure.BadParameter(key,
			"invalid format - format error\nfile: property is missing and it is not optional\n")
	case source != "" && (found == nil || found[2] != "0"):
		return p, failure.BadParameter(key,
			"'import-from' requires special syntax - use <storage ID>:0,import-from=<source>")
	case found == nil && !p.cloudInit:
		if s.disks.Get(node, volume) == nil && storage.OwnerOf(volume) != 0 {
			return p, failure.Internal("volume '%s' does not exist", volume)
		}
		p.volume = volume
		return p, nil
	case p.cloudInit:
		p.disk = storage.Disk{Size: 4 << 20, Format: "qcow2"}
		p.options["media"] = "cdrom"
		delete(p.options, "format")
	case source != "":
		if err := s.checkSource(c, node, key, source); err != nil {
			return p, err
		}
		p.disk = storage.Disk{Size: imageSize, Format: p.options.Take("format"), Source: source}
		if storage.OwnerOf(source) != 0 { // a disk of another guest, such as a template
			p.disk.Size = s.disks.Get(node, source).Size
		}
	case key == "efidisk0" || key == "tpmstate0":
		p.disk = storage.Disk{Size: 4 << 20, Format: p.options.Take("format")}
	default:
		gigabytes, _ := strconv.ParseFloat(found[2], 64) //nolint:errcheck // the pattern is a number
		p.disk = storage.Disk{Size: int64(gigabytes * (1 << 30)), Format: p.options.Take("format")}
	}
	p.storage, err = s.disks.Storage(id)
	if err == nil && !slices.Contains(p.storage.Content, "images") {
		err = failure.Internal("storage '%s' does not support content-type 'images'", id)
	}
	return p, err
}

func (s *Guests) checkSource(c *rpc.Call, node, key, volume string) error {
	id, name, ok := strings.Cut(volume, ":")
	if !ok {
		return failure.Forbidden("") // only root may use a path on the node
	}
	if _, err := s.disks.Storage(id); err != nil {
		return err
	}
	kind, _, inFolder := strings.Cut(name, "/")
	if inFolder && kind != "import" && storage.OwnerOf(volume) == 0 {
		return failure.BadParameter(key, "%s has wrong type '%s' - needs to be 'images' or 'import'", volume,
			kind)
	}
	if s.disks.Get(node, volume) == nil {
		return failure.Internal("could not get size of %s", volume)
	}
	return nil
}

// attach executes a plan and returns the option to store.
func (p drivePlan) attach(s *Guests, g *Guest) string {
	if p.volume == "" {
		p.volume = p.allocate(s, g)
	}
	if image := s.disks.Get(g.Node, p.disk.Source); image != nil && g.Image == "" {
		g.Image, g.ImageURL = image.Volume[strings.LastIndexAny(image.Volume, ":/")+1:], image.Source
	}
	if d := s.disks.Get(g.Node, p.volume); d != nil {
		p.options["size"] = option.PrintSize(d.Size)
	}
	return option.Print(p.volume, p.options)
}

// allocate creates the new volume. A disk gets the first free name vm-<id>-disk-<n>.
func (p drivePlan) allocate(s *Guests, g *Guest) string {
	d := p.disk
	d.Owner, d.Content, d.Format = g.ID, "images", cmp.Or(d.Format, "raw")
	if !p.storage.HoldsFiles() {
		d.Format = "raw"
	}
	d.Volume = p.storage.Image(g.ID, "cloudinit", d.Format)
	if !p.cloudInit {
		d.Volume = s.disks.FreeName(g.Node, p.storage, g.ID, d.Format)
	}
	s.disks.Store(g.Node, d)
	return d.Volume
}
