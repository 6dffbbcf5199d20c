package proxmox

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

var newDisk = regexp.MustCompile(`^([^:/]+):(\d+(?:\.\d+)?)$`)

// imageSize is the virtual size of every imported image.
const imageSize = 8 << 30

// drivePlan is a valid drive option before anything is created.
type drivePlan struct {
	volume    string // an existing volume, none or cdrom; empty for a new one
	storage   Storage
	disk      Disk // the new volume
	cloudInit bool
	options   properties
}

// planDrive validates a drive option. Its errors are those of a real node before it starts a worker.
func (c *call) planDrive(node, key, value string) (p drivePlan, err error) {
	p.options = parseProperties(value, "file")
	volume := cmp.Or(p.options.take("file"), p.options.take("volume"))
	source := p.options.take("import-from")
	id, name, _ := strings.Cut(volume, ":")
	found := newDisk.FindStringSubmatch(volume)
	p.cloudInit = name == "cloudinit"
	switch {
	case volume == "":
		return p, badParameter(key,
			"invalid format - format error\nfile: property is missing and it is not optional\n")
	case source != "" && (found == nil || found[2] != "0"):
		return p, badParameter(key,
			"'import-from' requires special syntax - use <storage ID>:0,import-from=<source>")
	case found == nil && !p.cloudInit:
		if c.s.disks.get(node, volume) == nil && ownerOf(volume) != 0 {
			return p, internal("volume '%s' does not exist", volume)
		}
		p.volume = volume
		return p, nil
	case p.cloudInit:
		p.disk = Disk{Size: 4 << 20, Format: "qcow2"}
		p.options["media"] = "cdrom"
		delete(p.options, "format")
	case source != "":
		if err := c.checkSource(node, key, source); err != nil {
			return p, err
		}
		p.disk = Disk{Size: imageSize, Format: p.options.take("format"), Source: source}
		if ownerOf(source) != 0 { // a disk of another guest, such as a template
			p.disk.Size = c.s.disks.get(node, source).Size
		}
	case key == "efidisk0" || key == "tpmstate0":
		p.disk = Disk{Size: 4 << 20, Format: p.options.take("format")}
	default:
		gigabytes, _ := strconv.ParseFloat(found[2], 64) //nolint:errcheck // the pattern is a number
		p.disk = Disk{Size: int64(gigabytes * (1 << 30)), Format: p.options.take("format")}
	}
	p.storage, err = c.s.config.storage(id)
	if err == nil && !slices.Contains(p.storage.Content, "images") {
		err = internal("storage '%s' does not support content-type 'images'", id)
	}
	return p, err
}

func (c *call) checkSource(node, key, volume string) error {
	id, name, ok := strings.Cut(volume, ":")
	if !ok {
		return forbidden("") // only root may use a path on the node
	}
	if _, err := c.s.config.storage(id); err != nil {
		return err
	}
	kind, _, inFolder := strings.Cut(name, "/")
	if inFolder && kind != "import" && ownerOf(volume) == 0 {
		return badParameter(key, "%s has wrong type '%s' - needs to be 'images' or 'import'", volume, kind)
	}
	if c.s.disks.get(node, volume) == nil {
		return internal("could not get size of %s", volume)
	}
	return nil
}

// attach executes a plan and returns the option to store.
func (p drivePlan) attach(s *Server, g *guest) string {
	if p.volume == "" {
		p.volume = p.allocate(s, g)
	}
	if image := s.disks.get(g.Node, p.disk.Source); image != nil && g.Image == "" {
		g.Image, g.ImageURL = image.Volume[strings.LastIndexAny(image.Volume, ":/")+1:], image.Source
	}
	if d := s.disks.get(g.Node, p.volume); d != nil {
		p.options["size"] = printSize(d.Size)
	}
	return printProperties(p.volume, p.options)
}

// allocate creates the new volume. A disk gets the first free name vm-<id>-disk-<n>.
func (p drivePlan) allocate(s *Server, g *guest) string {
	d := p.disk
	d.Owner, d.Content, d.Format = g.ID, "images", cmp.Or(d.Format, "raw")
	if !p.storage.holdsFiles() {
		d.Format = "raw"
	}
	d.Volume = p.storage.image(g.ID, "cloudinit", d.Format)
	if !p.cloudInit {
		d.Volume = s.freeName(g.Node, p.storage, g.ID, d.Format)
	}
	s.disks.store(g.Node, d)
	return d.Volume
}

// image is the volume of a guest's disk on the storage.
func (st Storage) image(id int, name, format string) string {
	if st.holdsFiles() {
		return fmt.Sprintf("%s:%d/vm-%[2]d-%s.%s", st.ID, id, name, format)
	}
	return fmt.Sprintf("%s:vm-%d-%s", st.ID, id, name)
}

// freeName is the first free volume vm-<id>-disk-<n>.
func (s *Server) freeName(node string, st Storage, id int, format string) string {
	for n := 0; ; n++ {
		volume := st.image(id, "disk-"+strconv.Itoa(n), format)
		if s.disks.get(node, volume) == nil {
			return volume
		}
	}
}

// printSize formats bytes in the largest unit that divides them.
func printSize(bytes int64) string {
	units := []string{"", "K", "M", "G", "T"}
	i := 0
	for ; i < len(units)-1 && bytes%1024 == 0 && bytes > 0; i++ {
		bytes /= 1024
	}
	return strconv.FormatInt(bytes, 10) + units[i]
}

func parseSize(s string) (int64, bool) {
	unit := int64(1)
	if i := strings.IndexAny(s, "KMGT"); i == len(s)-1 && i > 0 {
		unit <<= 10 * (1 + strings.IndexByte("KMGT", s[i]))
		s = s[:i]
	}
	n, err := strconv.ParseFloat(s, 64)
	return int64(n * float64(unit)), err == nil && n >= 0
}

// setDriveSize rewrites the size option of a drive.
func setDriveSize(value string, size int64) string {
	volume, rest, _ := strings.Cut(value, ",")
	options := parseProperties(rest, "file")
	options["size"] = printSize(size)
	return printProperties(volume, options)
}
