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

// drivePlan is a valid drive option before anything is created.
type drivePlan struct {
	storage    Storage
	volume     string  // an existing volume, none or cdrom
	gigabytes  float64 // of a new disk
	fresh      bool
	cloudInit  bool
	importFrom string
	format     string
	options    []property
}

// planDrive validates a drive option. Its errors are those of a real node before
// it starts a worker.
func (s *storages) planDrive(node, key, value string) (drivePlan, error) {
	var p drivePlan
	for _, part := range parseProperties(value, "file") {
		switch part.key {
		case "file", "volume":
			p.volume = part.value
		case "import-from":
			p.importFrom = part.value
		case "format":
			p.format = part.value
		default:
			p.options = append(p.options, part)
		}
	}
	if p.volume == "" {
		return p, badParameter(key,
			"invalid format - format error\nfile: property is missing and it is not optional\n")
	}
	storage, name, _ := strings.Cut(p.volume, ":")
	found := newDisk.FindStringSubmatch(p.volume)
	p.fresh, p.cloudInit = found != nil, name == "cloudinit"
	if p.importFrom != "" {
		if found == nil || found[2] != "0" {
			return p, badParameter(key,
				"'import-from' requires special syntax - use <storage ID>:0,import-from=<source>")
		}
		if err := s.checkSource(node, key, p.importFrom); err != nil {
			return p, err
		}
	}
	if !p.fresh && !p.cloudInit {
		if d := s.volumes[volumeKey{node, p.volume}]; d == nil && ownerOf(p.volume) != 0 {
			return p, internal("volume '%s' does not exist", p.volume)
		}
		return p, nil
	}
	if p.fresh {
		p.gigabytes, _ = strconv.ParseFloat(found[2], 64) //nolint:errcheck // the pattern is a number
	}
	p.options = slices.DeleteFunc(p.options, func(x property) bool { return x.key == "size" })
	var err error
	if p.storage, err = s.byID(storage); err == nil && !slices.Contains(p.storage.Content, "images") {
		err = internal("storage '%s' does not support content-type 'images'", storage)
	}
	return p, err
}

func (s *storages) checkSource(node, key, volume string) error {
	id, name, ok := strings.Cut(volume, ":")
	if !ok {
		return forbidden("", "") // only root may use a path on the node
	}
	if _, err := s.byID(id); err != nil {
		return err
	}
	kind, _, inFolder := strings.Cut(name, "/")
	if inFolder && kind != "import" && ownerOf(volume) == 0 {
		text := fmt.Sprintf("%s has wrong type '%s' - needs to be 'images' or 'import'", volume, kind)
		return badParameter(key, text)
	}
	if s.volumes[volumeKey{node, volume}] == nil {
		return internal("could not get size of %s", volume)
	}
	return nil
}

// attach executes a plan and returns the option to store.
func (s *storages) attach(g *guest, key string, p drivePlan) string {
	switch {
	case p.cloudInit:
		name := fmt.Sprintf("vm-%d-cloudinit", g.ID)
		volume := s.allocate(g, p.storage, name, Disk{Size: 4 << 20, Format: "qcow2"})
		return printProperties(volume, append(p.options, property{"media", "cdrom"}, property{"size", "4M"}))
	case !p.fresh:
		if p.format != "" {
			p.options = append(p.options, property{"format", p.format})
		}
		value := printProperties(p.volume, p.options)
		if d := s.volumes[volumeKey{g.Node, p.volume}]; d != nil {
			value = setDriveSize(value, d.Size)
		}
		return value
	}
	d := Disk{Size: int64(p.gigabytes * (1 << 30)), Format: p.format, Source: p.importFrom}
	switch {
	case p.importFrom != "":
		d.Size = s.config.ImageSize
		if image := s.volumes[volumeKey{g.Node, p.importFrom}]; g.Image == "" && image != nil {
			g.Image, g.ImageURL = p.importFrom[strings.LastIndexAny(p.importFrom, ":/")+1:], image.Source
		}
	case key == "efidisk0" || key == "tpmstate0":
		d.Size = 4 << 20
	}
	volume := s.allocate(g, p.storage, "", d)
	return printProperties(volume, append(p.options, property{"size", printSize(d.Size)}))
}

// allocate creates a volume for a guest; without a name it uses the first free
// vm-<id>-disk-<n>.
func (s *storages) allocate(g *guest, storage Storage, name string, d Disk) string {
	d.Owner, d.Content, d.Format = g.ID, "images", cmp.Or(d.Format, "raw")
	if storage.Type != "dir" {
		d.Format = "raw"
	}
	volume := func(name string) string {
		if storage.Type == "dir" {
			return fmt.Sprintf("%s:%d/%s.%s", storage.ID, g.ID, name, d.Format)
		}
		return storage.ID + ":" + name
	}
	for n := 0; name == ""; n++ {
		candidate := fmt.Sprintf("vm-%d-disk-%d", g.ID, n)
		if s.volumes[volumeKey{g.Node, volume(candidate)}] == nil {
			name = candidate
		}
	}
	d.Volume = volume(name)
	s.add(g.Node, &d)
	return d.Volume
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

// driveSize reads the size option of the drive that holds a volume.
func driveSize(options map[string]string, volume string) int64 {
	for _, value := range options {
		if strings.HasPrefix(value, volume) {
			size, _ := parseSize(parseProperties(value, "file").get("size"))
			return size
		}
	}
	return 0
}

// setDriveSize rewrites the size option of a drive.
func setDriveSize(value string, size int64) string {
	volume, options, _ := strings.Cut(value, ",")
	parts := slices.DeleteFunc(parseProperties(options, "file"),
		func(p property) bool { return p.key == "size" })
	return printProperties(volume, append(parts, property{"size", printSize(size)}))
}
