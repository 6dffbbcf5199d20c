package storage

import (
	"fmt"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/failure"
	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/rpc"
)

// FileSize is the size of every file that a node makes or downloads.
const FileSize = 1 << 30

func (all *Volumes) queryURL(c *rpc.Call) (any, error) {
	if err := checkFetch(c); err != nil {
		return nil, err
	}
	where, err := url.Parse(c.Get("url"))
	if err != nil || (where.Scheme != "http" && where.Scheme != "https") {
		return nil, failure.BadParameter("url", "value does not match the regex pattern\n")
	}
	if all.fetch != nil {
		if err := all.fetch(where.String()); err != nil {
			return nil, failure.Internal("invalid server response: '%s'\n", err)
		}
	}
	return map[string]any{
		"filename": path.Base(where.Path), "size": FileSize, "mimetype": "application/octet-stream",
	}, nil
}

// fileNames match the files that may be downloaded, by content type.
var fileNames = map[string]*regexp.Regexp{
	"iso":    regexp.MustCompile(`(?i).\.(iso|img)$`),
	"vztmpl": regexp.MustCompile(`(?i).\.(tar|tar\.(gz|xz|zst|bz2))$`),
	"import": regexp.MustCompile(`^[a-zA-Z0-9_.+-]+\.(ova|qcow2|raw|vmdk)$`),
}

var unsafeName = regexp.MustCompile(`[^a-zA-Z0-9_.-]`)

// download fetches nothing: the file appears when the task is over, with its URL.
func (all *Volumes) download(c *rpc.Call, st Storage) (any, error) {
	if err := checkFetch(c); err != nil {
		return nil, err
	}
	content, name := c.Get("content"), unsafeName.ReplaceAllString(path.Base(c.Get("filename")), "_")
	switch pattern := fileNames[content]; {
	case !st.HoldsFiles():
		return nil, failure.Internal("can't upload to storage type '%s', not a file based storage!", st.Type)
	case !slices.Contains(st.Content, content):
		return nil, failure.Internal("storage '%s' is not configured for content-type '%s'", st.ID, content)
	case pattern == nil:
		return nil, failure.BadParameter("content", "upload content-type '%s' is not allowed", content)
	case !pattern.MatchString(name) && content == "import":
		return nil, failure.BadParameter("filename", "invalid filename or wrong extension")
	case !pattern.MatchString(name):
		return nil, failure.BadParameter("filename", "wrong file extension")
	}
	d := Disk{
		Volume: st.ID + ":" + content + "/" + name, Size: FileSize, Format: content, Content: content,
		Source: c.Get("url"), Checksum: strings.ToLower(c.Get("checksum")),
	}
	if content == "import" {
		d.Format = strings.TrimPrefix(path.Ext(name), ".")
	}
	node := c.Get("node")
	return c.Launch("download", name, func(*rpc.Task) error {
		old := all.Get(node, d.Volume)
		switch {
		case c.Get("compression") != "" && content != "iso":
			return fmt.Errorf("decompression not supported for %s", content)
		case old == nil:
			all.Store(node, d)
		case d.Checksum == "":
			return fmt.Errorf("refusing to override existing file '%s'", st.file(d.Volume))
		case d.Checksum != old.Checksum:
			return fmt.Errorf("checksum mismatch: got '%s' != expect '%s', aborting", old.Checksum,
				d.Checksum)
		}
		return nil
	}).UPID, nil
}

// checkFetch is the error for a caller that may not have a node fetch a URL.
func checkFetch(c *rpc.Call) error {
	if c.Caller.May("/", "Sys.Audit", "Sys.Modify") ||
		c.Caller.May("/nodes/"+c.Get("node"), "Sys.AccessNetwork") {
		return nil
	}
	return failure.Forbidden("")
}
