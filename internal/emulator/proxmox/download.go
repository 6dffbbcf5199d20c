package proxmox

import (
	"fmt"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
)

// downloadSize is what the far end of every URL claims to have.
const downloadSize = 1 << 30

func (s *Server) queryURL(c *call) (any, error) {
	where, err := url.Parse(c.get("url"))
	if err != nil || (where.Scheme != "http" && where.Scheme != "https") {
		return nil, badParameter("url", "value does not match the regex pattern\n")
	}
	return map[string]any{"filename": path.Base(where.Path), "size": downloadSize, "mimetype": "application/octet-stream"}, nil
}

var (
	isoName    = regexp.MustCompile(`(?i).\.(iso|img)$`)
	vztmplName = regexp.MustCompile(`(?i).\.(tar|tar\.(gz|xz|zst|bz2))$`)
	importName = regexp.MustCompile(`^[a-zA-Z0-9_.+-]+\.(ova|qcow2|raw|vmdk)$`)
	unsafeName = regexp.MustCompile(`[^a-zA-Z0-9_.-]`)
)

// checkName judges the name of a file that is to be downloaded.
func checkName(content, name string) error {
	ok, text := true, "wrong file extension"
	switch content {
	case "iso":
		ok = isoName.MatchString(name)
	case "vztmpl":
		ok = vztmplName.MatchString(name)
	case "import":
		ok, text = importName.MatchString(name), "invalid filename or wrong extension"
	default:
		return badParameter("content", fmt.Sprintf("upload content-type '%s' is not allowed", content))
	}
	if !ok {
		return badParameter("filename", text)
	}
	return nil
}

// download is POST …/download-url. Nothing is fetched: the file appears when
// the task is over, and remembers where it would have come from.
func (s *Server) download(c *call) (any, error) {
	st, err := s.storage(c.vars["storage"])
	if err != nil {
		return nil, err
	}
	content, name := c.get("content"), unsafeName.ReplaceAllString(path.Base(c.get("filename")), "_")
	switch {
	case st.Type != "dir":
		return nil, internal("can't upload to storage type '%s', not a file based storage!", st.Type)
	case !slices.Contains(st.Content, content):
		return nil, internal("storage '%s' is not configured for content-type '%s'", st.ID, content)
	}
	if err := checkName(content, name); err != nil {
		return nil, err
	}
	format := strings.TrimPrefix(path.Ext(name), ".")
	if content != "import" {
		format = content
	}
	volume := st.ID + ":" + content + "/" + name
	return s.launch(c, job{node: c.vars["node"], kind: "download", id: name, do: func(*task) error {
		if c.get("compression") != "" && content != "iso" {
			return fmt.Errorf("decompression not supported for %s", content)
		}
		checksum := strings.ToLower(c.get("checksum"))
		if old := s.volumes[volumeKey{c.vars["node"], volume}]; old != nil {
			switch {
			case checksum == "":
				return fmt.Errorf("refusing to override existing file '%s'", st.file(volume))
			case old.Checksum != checksum:
				return fmt.Errorf("checksum mismatch: got '%s' != expect '%s', aborting", old.Checksum, checksum)
			}
			return nil
		}
		s.addVolume(c.vars["node"], &Disk{
			Volume: volume, Size: downloadSize, Format: format, Content: content, Source: c.get("url"), Checksum: checksum,
		})
		return nil
	}}), nil
}
