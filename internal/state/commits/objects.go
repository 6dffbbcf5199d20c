package commits

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// format is the newest format of a commit that this castle reads.
const format = 1

// mostBytes is how large an object may be, and mostCommit a commit: it is read before its signature is
// checked, and names some hundred thousand files at most.
const mostBytes, mostCommit = 1 << 30, 32 << 20

// objectName is the hash of the stored bytes and a suffix. The suffix is random for each writer: two of them
// never write the same object, so a holder that has lost the lock and still removes objects never removes one
// that a later holder wrote.
var objectName = regexp.MustCompile(`^[0-9a-f]{64}-[0-9a-f]{8}$`)

// DamagedError reports that the store has lost or changed a part of a commit.
type DamagedError struct {
	URL, Cluster string
	Commit       int64
	Path         string // of the file; empty: the commit itself
	Key          string // in the store
	Reason       error
}

func (e *DamagedError) Error() string {
	where := fmt.Sprintf("commit %d of %s", e.Commit, e.Cluster)
	if e.Path != "" {
		where += ", " + e.Path
	}
	fix := fmt.Sprintf("go back to a commit before it: `castle state log %s` lists them, `castle state "+
		"restore %[1]s --commit N`", e.Cluster)
	if e.Path == "" { // no command reads past it
		fix = "if it is not castle's, or the commit before it is right, remove it there"
	}
	return fmt.Sprintf("%s: %s: %s is damaged: %v\n  restore it from a backup of the store, or %s", e.URL,
		where, e.Key, e.Reason, fix)
}

func (e *DamagedError) Unwrap() error { return e.Reason }

func (l *Log) decode(sequence int64, data []byte) (*Commit, error) {
	var c Commit
	plain, err := decompress(data, mostCommit)
	text, signature, _ := bytes.Cut(plain, []byte("\n"))
	if err == nil {
		err = json.Unmarshal(text, &struct{ Format *int }{&c.Format})
	}
	if err == nil && c.Format > format {
		json.Unmarshal(text, &struct{ Castle *string }{&c.Castle}) //nolint:errcheck // only for the text
		return nil, fmt.Errorf("%s: commit %d of %s has format %d, which castle %s wrote; this castle reads "+
			"format %d\n  install castle %s or a newer one", l.URL(), sequence, l.cluster, c.Format, c.Castle,
			format, c.Castle)
	}
	if err == nil {
		err = json.Unmarshal(text, &c)
	}
	if err == nil {
		err = c.check(l.cluster, sequence)
	}
	if err != nil {
		return nil, damaged(l, sequence, l.key(sequence), "", err)
	}
	c.Digest, c.Untrusted = digestOf(text), l.verify(&c, text, signature)
	return &c, nil
}

// check refuses what no castle writes. A path could lead out of the state directory.
func (c *Commit) check(cluster string, sequence int64) error {
	switch {
	case c.Format < 1:
		return errors.New("it has no format")
	case c.Sequence != sequence:
		return fmt.Errorf("it says that it is commit %d", c.Sequence)
	case c.Cluster != cluster && (c.Cluster != "" || c.Signer != ""):
		return fmt.Errorf("it is a commit of the cluster %q", c.Cluster)
	case c.ID == "":
		return errors.New("it has no ID")
	}
	for name, f := range c.Files {
		switch {
		case !localPath(name):
			return fmt.Errorf("%q cannot be the path of a file", name)
		case !objectName.MatchString(f.Object):
			return fmt.Errorf("%s: %q cannot be the name of an object", name, f.Object)
		case f.Offset < 0 || f.Size < 0 || f.Offset > mostBytes || f.Size > mostBytes-f.Offset:
			return fmt.Errorf("%s: %d bytes at %d", name, f.Size, f.Offset)
		case f.Mode&^fs.ModePerm != 0:
			return fmt.Errorf("%s: mode %o", name, f.Mode)
		}
	}
	return nil
}

func localPath(name string) bool {
	return name != "." && path.Clean(name) == name && filepath.IsLocal(name) &&
		!strings.ContainsAny(name, "\\\x00")
}

func compress(data []byte) ([]byte, error) {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write(data)
	err = errors.Join(err, w.Close())
	return b.Bytes(), err
}

func decompress(data []byte, most int64) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	plain, err := io.ReadAll(io.LimitReader(r, most+1))
	if err == nil && int64(len(plain)) > most {
		err = errors.New("it is too large")
	}
	return plain, err
}

// Upload stores the contents of files as one object and returns where each lies, without modes. Equal
// contents lie there once. The caller holds the lock by a commit, or the log has none yet: Prune removes what
// lies there and no commit names.
func (l *Log) Upload(ctx context.Context, contents [][]byte) ([]File, error) {
	if len(contents) == 0 {
		return nil, nil
	}
	if err := l.cipher.check(); err != nil {
		return nil, err
	}
	var plain []byte
	files, lies := make([]File, len(contents)), map[[sha256.Size]byte]File{}
	for i, content := range contents {
		sum := sha256.Sum256(content)
		f, known := lies[sum]
		if !known {
			f = File{Offset: int64(len(plain)), Size: int64(len(content))}
			lies[sum], plain = f, append(plain, content...)
		}
		files[i] = f
	}
	if len(plain) > mostBytes {
		return nil, fmt.Errorf("%s: a commit of %d bytes; at most %d are possible", l.cluster, len(plain),
			mostBytes)
	}
	data, err := compress(plain)
	if err == nil {
		data, err = l.cipher.encrypt(data)
	}
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("%x-%s", sha256.Sum256(data), l.suffix)
	for i := range files {
		files[i].Object = name
	}
	err = l.store.Create(ctx, l.prefix("objects")+name, data)
	if errors.Is(err, fs.ErrExist) { // an earlier attempt, whose answer was lost
		err = nil
	}
	return files, err
}

// Download reads the contents of some files of a commit, or of all: each object once, several at a time.
func (l *Log) Download(ctx context.Context, c *Commit, paths ...string) (map[string][]byte, error) {
	if len(paths) == 0 {
		paths = slices.Collect(maps.Keys(c.Files))
	}
	slices.Sort(paths)
	in := map[string][]string{} // object → paths
	for _, name := range paths {
		object := c.Files[name].Object
		in[object] = append(in[object], name)
	}
	var mu sync.Mutex
	contents := map[string][]byte{}
	return contents, each(ctx, slices.Sorted(maps.Keys(in)), func(ctx context.Context, object string) error {
		key := l.prefix("objects") + object
		plain, err := l.object(ctx, c, key, in[object][0])
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		for _, name := range in[object] {
			f := c.Files[name]
			if f.Offset+f.Size > int64(len(plain)) {
				return damaged(l, c.Sequence, key, name, errors.New("it is too short"))
			}
			contents[name] = plain[f.Offset : f.Offset+f.Size : f.Offset+f.Size]
		}
		return nil
	})
}

func damaged(l *Log, sequence int64, key, file string, reason error) error {
	return &DamagedError{l.URL(), l.cluster, sequence, file, key, reason}
}

// object reads an object of a commit; file is one in it, for messages.
func (l *Log) object(ctx context.Context, c *Commit, key, file string) ([]byte, error) {
	data, err := l.store.Read(ctx, key)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, damaged(l, c.Sequence, key, file,
			fmt.Errorf("the store does not have it: %w", fs.ErrNotExist))
	case err != nil:
		return nil, err
	case !strings.HasPrefix(path.Base(key), fmt.Sprintf("%x-", sha256.Sum256(data))):
		return nil, damaged(l, c.Sequence, key, file, errors.New("its content does not match its name"))
	case len(l.cipher.recipients) > 0 && !IsSealed(data) && !slices.Contains(l.cipher.trusted, Unsigned):
		return nil, untrusted(l, c, key, Unsigned,
			"has contents that are not encrypted ("+file+"), though castle.hcl names recipients")
	}
	if data, err = l.cipher.decrypt(data, c); err != nil {
		return nil, err
	}
	if data, err = decompress(data, mostBytes); err != nil {
		err = damaged(l, c.Sequence, key, file, err)
	}
	return data, err
}
