package proxmox

import (
	"errors"
	"strconv"
	"strings"
)

// resize is PUT …/resize; the work is a task.
func (s *Server) resize(c *call) (any, error) {
	m, err := s.guest(c, "VM.Config.Disk")
	if err != nil {
		return nil, err
	}
	if c.get("skiplock") != "" {
		return nil, badParameter("skiplock", "Only root may use this option.")
	}
	if lock := m.options["lock"]; lock != "" {
		return nil, internal("%v", locked(lock))
	}
	key, want := c.get("disk"), c.get("size")
	relative := strings.HasPrefix(want, "+")
	size, ok := parseSize(strings.TrimPrefix(want, "+"))
	volume, _, _ := strings.Cut(m.options[key], ",")
	switch {
	case !ok:
		return nil, badParameter("size", "value does not match the regex pattern\n")
	case volume == "":
		return nil, internal("disk '%s' does not exist", key)
	case strings.Contains(m.options[key], "media=cdrom"):
		return nil, internal("you can't resize a cdrom")
	}
	return s.launch(c, job{node: m.node, kind: "resize", id: strconv.Itoa(m.id), do: func(*task) error {
		d := s.volumes[volumeKey{m.node, volume}]
		if d == nil {
			return internal("Could not determine current size of volume '%s'", volume)
		}
		if relative {
			size += d.Size
		}
		if size < d.Size {
			return errors.New("shrinking disks is not supported")
		}
		d.Size = size
		m.options[key] = setDriveSize(m.options[key], size)
		return nil
	}}), nil
}
