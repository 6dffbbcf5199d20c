package commits

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ephemeral-castle/castle/internal/state/commits/commitstest"
)

// FuzzCommit reads a commit that anybody with access to the store may have written. It is refused with an
// error that names it, or all its files lie below the state directory and are read as long as it says.
func FuzzCommit(f *testing.F) {
	object, err := compress([]byte("the content of a file"))
	if err != nil {
		f.Fatal(err)
	}
	name := fmt.Sprintf("%x-00000000", sha256.Sum256(object))
	whole := Commit{Format: format, Sequence: 7, ID: "id", Lock: lockOf("run"), Files: map[string]File{
		"stages/keys/record.json": {Object: name, Offset: 4, Size: 7, Mode: 0o600}}}
	for _, change := range []func(*Commit){
		func(*Commit) {},
		func(c *Commit) { c.Files["../../.ssh/authorized_keys"] = File{Object: name} },
		func(c *Commit) { c.Files["/etc/passwd"] = File{Object: name} },
		func(c *Commit) { c.Files["layout"] = File{Object: name, Offset: 1 << 62, Size: 1 << 62} },
		func(c *Commit) { c.Files["layout"] = File{Object: name, Offset: 20, Size: 2} },
		func(c *Commit) { c.Files["layout"] = File{Object: "../../../elsewhere"} },
		func(c *Commit) { c.Format = 2 },
		func(c *Commit) { c.Sequence = 8 },
	} {
		c := whole
		c.Files = map[string]File{"stages/keys/record.json": whole.Files["stages/keys/record.json"]}
		change(&c)
		plain, err := json.Marshal(c)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(plain, true)
	}
	f.Add([]byte("null"), true)
	f.Add([]byte(`{"format":null,"files":[]}`), true)
	f.Add([]byte("no gzip"), false)
	f.Fuzz(func(t *testing.T, data []byte, pack bool) {
		if pack {
			var err error
			if data, err = compress(data); err != nil {
				t.Fatal(err)
			}
		}
		s := commitstest.New("memory://store")
		l := open(t, s)
		s.Replace(l.key(7), data)
		s.Replace(l.prefix("objects")+name, object)
		c, err := l.Head(t.Context())
		if err != nil {
			if !strings.Contains(err.Error(), "commit 7 of "+cluster) {
				t.Errorf("no commit is named: %v", err)
			}
			return
		}
		for file := range c.Files {
			if in, err := filepath.Rel("/state", filepath.Join("/state", file)); err != nil || in != file {
				t.Errorf("%q is not below the state directory", file)
			}
		}
		contents, err := l.Download(t.Context(), c)
		if err != nil && !errors.As(err, new(*DamagedError)) {
			t.Errorf("no damage is named: %v", err)
		}
		for file, content := range contents {
			if err == nil && int64(len(content)) != c.Files[file].Size {
				t.Errorf("%s has %d bytes, not %d", file, len(content), c.Files[file].Size)
			}
		}
	})
}
