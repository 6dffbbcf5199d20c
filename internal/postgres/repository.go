package postgres

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha1" //nolint:gosec // the checksum that pgBackRest puts into the names of segments
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/siderolabs/gen/xslices"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/store"
	"github.com/ephemeral-castle/castle/internal/survivor"
	"github.com/ephemeral-castle/castle/internal/survivor/bucket"
)

// A repository has the layout of pgBackRest 2 (src/info, src/command/archive/common.c). PGO's stanza is db.
const (
	backups    = "backup/db/"
	archive    = "archive/db/"
	infoFile   = "backup.info"
	manifest   = "backup.manifest"
	mostOfText = 64 << 20 // bytes of a text or a segment that castle reads
)

// backup is a line of backup.info.
type backup struct {
	label string
	Start string   `json:"backup-archive-start"`
	End   string   `json:"backup-archive-stop"`
	Error bool     `json:"backup-error"`
	Bytes int64    `json:"backup-info-repo-size"`
	Stop  int64    `json:"backup-timestamp-stop"` // Unix time
	Of    []string `json:"backup-reference"`      // the backups that hold some of its files
	DB    int      `json:"db-id"`
}

// labels matches the label of a backup. It becomes an option of a restore.
var labels = regexp.MustCompile(`^[0-9]{8}-[0-9]{6}F(_[0-9]{8}-[0-9]{6}[DI])?$`)

// Saves lists the documents of saves. Of a birth without any, its newest backup counts.
func (d *database) Saves(ctx context.Context) (all []survivor.Save, err error) {
	return all, d.documents.Within(func(in store.Store) error {
		if all, err = d.documents.Saves(ctx, in); err != nil {
			return err
		}
		saved := xslices.ToMap(all, func(s survivor.Save) (string, bool) { return s.Path, true })
		births, err := d.documents.Births(ctx, in, mostBirths, func(b survivor.Birth) error {
			if !d.below(b.Path) {
				return fmt.Errorf("its path %q is not below %s", b.Path, d.base)
			}
			return nil
		})
		if err != nil {
			return err
		}
		looked := 0
		for _, b := range slices.Backward(births) {
			if saved[b.Path] || looked == keptBirths {
				continue
			}
			found, err := (&repository{in: in, path: b.Path}).found(ctx)
			if err != nil {
				return err
			}
			if found != nil {
				looked++
				found.Cluster, found.Name, found.Birth = b.Cluster, b.Name, b.ID
				all = append(all, *found)
			}
		}
		survivor.Sort(all)
		return nil
	})
}

// At how many births without a save castle looks: each is read at every look.
const (
	keptBirths = 5
	mostBirths = 100 // those without a backup are read in vain
)

// below reports whether a path is that of a birth of this database.
func (d *database) below(of string) bool {
	return path.Dir(of) == d.base && bucket.Paths.MatchString(of)
}

// Announce writes the document of a birth.
func (d *database) Announce(ctx context.Context, b survivor.Birth) error {
	return d.documents.Announce(ctx, b)
}

// found returns the data of a birth that castle has never saved: nil without a backup.
func (r *repository) found(ctx context.Context) (*survivor.Save, error) {
	all, release, err := r.backups(ctx)
	all = slices.DeleteFunc(all, func(b backup) bool { return b.Error })
	if err != nil || len(all) == 0 {
		return nil, err
	}
	b := all[len(all)-1]
	return &survivor.Save{ID: "found-" + path.Base(r.path), Path: r.path, Time: time.Unix(b.Stop, 0).UTC(),
		Release: release, Bytes: b.Bytes, Tables: []survivor.Table{}}, nil
}

// valid refuses a document that castle has not written so.
func (d *database) valid(s survivor.Save) error {
	if _, err := segmentsOf(s.Position); err != nil {
		return err
	}
	if !d.below(s.Path) {
		return fmt.Errorf("its path %q is not below %s", s.Path, d.base)
	}
	return nil
}

// Prove returns the newest whole backup from whose beginning to the end of the save the bucket holds the log.
func (d *database) Prove(ctx context.Context, s survivor.Save) (survivor.Proof, error) {
	b, gap, err := d.newest(ctx, s)
	if err != nil {
		return survivor.Proof{}, err
	}
	return survivor.Proof{Set: b.label, Gap: gap}, nil
}

// newest returns the newest backup from which the save can be restored, and the first segment that lacks.
func (d *database) newest(ctx context.Context, s survivor.Save) (b *backup, gap string, err error) {
	return b, gap, d.documents.Within(func(in store.Store) (err error) {
		b, gap, err = (&repository{in: in, path: s.Path}).newest(ctx, s)
		return err
	})
}

// newest returns the newest backup of which all is there, with the log from its begin to the end of a save.
func (r *repository) newest(ctx context.Context, s survivor.Save) (_ *backup, gap string, _ error) {
	all, release, err := r.backups(ctx)
	if err != nil {
		return nil, "", err
	}
	var reasons []error
	for _, b := range slices.Backward(all) {
		if b.Error {
			continue
		}
		var err error
		if s.Position != nil {
			gap, err = r.proveLog(ctx, fmt.Sprintf("%s-%d", release, b.DB), b, s.Position)
		}
		if err == nil {
			err = r.proveFiles(ctx, b)
		}
		if err == nil {
			return &b, gap, nil
		}
		if errors.As(err, new(*store.Error)) {
			return nil, "", err
		}
		reasons = append(reasons, fmt.Errorf("backup %s: %w", b.label, err))
	}
	if len(reasons) == 0 {
		return nil, "", &gate.Finding{Kind: gate.Waits, Object: "repository " + s.Path,
			Text: "has no backup yet"}
	}
	return nil, "", fmt.Errorf("repository %s holds nothing to restore %s from: %w", s.Path, s,
		errors.Join(reasons...))
}

// repository is a repository of pgBackRest.
type repository struct {
	in   store.Store
	path string
}

// backups reads backup.info, the oldest backup first, and the release of PostgreSQL.
func (r *repository) backups(ctx context.Context) (all []backup, release string, err error) {
	text, err := r.in.Read(ctx, bucket.Key(r.path, backups+infoFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", err
	}
	err = sections(text, func(section, name string, value []byte) error {
		switch {
		case section == "backup:current":
			b := backup{label: name}
			if !labels.MatchString(name) {
				return fmt.Errorf("%s: %q is no label of a backup", infoFile, name)
			}
			if err := json.Unmarshal(value, &b); err != nil {
				return fmt.Errorf("%s: %s: %w", infoFile, name, err)
			}
			all = append(all, b)
		case section == "db" && name == "db-version":
			return json.Unmarshal(value, &release)
		}
		return nil
	})
	slices.SortFunc(all, func(a, b backup) int { return strings.Compare(a.label, b.label) })
	if err == nil && release == "" {
		err = fmt.Errorf("repository %s: %s names no release of PostgreSQL; castle reads no encrypted "+
			"repository", r.path, infoFile)
	}
	return all, release, err
}

// sections calls visit for each line of a file of pgBackRest, whose values are JSON.
func sections(text []byte, visit func(section, name string, value []byte) error) error {
	section, lines := "", bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, mostOfText)
	for lines.Scan() {
		line := lines.Bytes()
		if bytes.HasPrefix(line, []byte("[")) && bytes.HasSuffix(line, []byte("]")) {
			section = string(line[1 : len(line)-1])
			continue
		}
		if name, value, is := bytes.Cut(line, []byte("=")); is {
			if err := visit(section, string(name), value); err != nil {
				return err
			}
		}
	}
	return lines.Err()
}

// proveFiles returns nil if all files of a backup's manifest are there, those of earlier backups too.
func (r *repository) proveFiles(ctx context.Context, b backup) error {
	text, err := r.in.Read(ctx, bucket.Key(r.path, backups+b.label, manifest))
	if err != nil {
		return err
	}
	there := map[string]bool{}
	for _, label := range append([]string{b.label}, b.Of...) {
		names, err := r.in.List(ctx, bucket.Key(r.path, backups+label)+"/")
		if err != nil {
			return err
		}
		for _, name := range names {
			there[strings.TrimPrefix(name, bucket.Key(r.path, backups))] = true
		}
	}
	files, missing := 0, ""
	err = sections(text, func(section, name string, value []byte) error {
		if section != "target:file" {
			return nil
		}
		var f struct {
			Size      int64
			Reference string
			Bundle    int `json:"bni"`
		}
		if err := json.Unmarshal(value, &f); err != nil {
			return fmt.Errorf("%s: %s: %w", manifest, name, err)
		}
		files++
		of := b.label
		if f.Reference != "" {
			of = f.Reference
		}
		if f.Bundle > 0 {
			name = fmt.Sprintf("bundle/%d", f.Bundle)
		}
		has := there[of+"/"+name]
		for _, suffix := range suffixes() {
			has = has || there[of+"/"+name+suffix]
		}
		if !has && f.Size > 0 && missing == "" {
			missing = of + "/" + name
		}
		return nil
	})
	switch {
	case err != nil:
		return err
	case files == 0:
		return fmt.Errorf("its %s lists no file", manifest)
	case missing != "":
		return fmt.Errorf("the file %s is not in the bucket", missing)
	}
	return nil
}

// suffixes are those of files that pgBackRest has compressed.
func suffixes() []string { return []string{".gz", ".lz4", ".zst", ".bz2", ".pgbi"} }

// position is a range of segments of PostgreSQL's log.
type position struct {
	last  string // the segment's name
	perID uint64 // how many segments have the same first 16 digits
}

// positions matches a position in a log. It becomes an option of a restore.
var positions = regexp.MustCompile(`^[0-9A-F]{1,8}/[0-9A-F]{1,8}$`)

// segmentsOf reads a save's position.
func segmentsOf(at map[string]string) (p position, err error) {
	bytes, err := strconv.ParseUint(at[segments], 10, 63)
	_, _, malformed := segment(at[lastWAL])
	if err != nil || bytes == 0 || bytes > 1<<32 || malformed != nil || !positions.MatchString(at[lsn]) {
		return p, errors.New("it has no position in the log")
	}
	return position{at[lastWAL], (1 << 32) / bytes}, nil
}

// segment returns the timeline and the number of a segment, with 32 bits for each of its halves.
func segment(name string) (timeline, halves uint64, err error) {
	if len(name) != 24 {
		return 0, 0, fmt.Errorf("%q is no segment of a log", name)
	}
	timeline, first := strconv.ParseUint(name[:8], 16, 64)
	halves, second := strconv.ParseUint(name[8:], 16, 64)
	return timeline, halves, errors.Join(first, second)
}

// archived matches a segment in a repository: its name, the SHA-1 of its content, and how it is compressed.
var archived = regexp.MustCompile(`^([0-9A-F]{24})-([0-9a-f]{40})(?:\.(gz|lz4|zst|bz2))?$`)

// proveLog returns nil if every segment from the first one to the last of a position is archived, and the
// content of the last has its checksum. Another timeline may hold a segment: a replica may have taken over.
// gap is the first segment after that which lacks although later ones are there.
func (r *repository) proveLog(ctx context.Context, id string, b backup, at map[string]string) (
	gap string, err error) {
	p, err := segmentsOf(at)
	if err != nil {
		return "", err
	}
	_, from, fromErr := segment(b.Start)
	_, consistent, endErr := segment(b.End)
	line, to, toErr := segment(p.last)
	if err := errors.Join(fromErr, endErr, toErr); err != nil {
		return "", err
	}
	if to < max(from, consistent) {
		return "", fmt.Errorf("it ends at %s, after the save does", b.End)
	}
	names, err := r.in.List(ctx, bucket.Key(r.path, archive+id)+"/")
	if err != nil {
		return "", err
	}
	has, last, end := map[uint64]bool{}, "", to
	for _, name := range names {
		found := archived.FindStringSubmatch(path.Base(name))
		if found == nil {
			continue
		}
		on, number, err := segment(found[1])
		if err != nil || on > line && number <= to {
			continue
		}
		has[number], end = true, max(end, number)
		if found[1] == p.last {
			last = name
		}
	}
	if last == "" {
		return "", &gate.Finding{Kind: gate.Waits, Object: "segment " + p.last, Text: "is not archived yet"}
	}
	missing := func(n, end uint64) (uint64, bool) {
		for n <= end && has[n] {
			n = p.next(n)
		}
		return n, n <= end
	}
	if n, is := missing(from, to); is {
		return "", fmt.Errorf("the log has a gap: segment %016X is not archived", n)
	}
	if n, is := missing(to, end); is {
		gap = fmt.Sprintf("segment %016X", n)
	}
	return gap, r.proveSegment(ctx, last)
}

// next is the segment after n.
func (p position) next(n uint64) uint64 {
	if n&0xFFFFFFFF+1 < p.perID {
		return n + 1
	}
	return (n>>32 + 1) << 32
}

// proveSegment compares the content of a segment with the SHA-1 in its name, if castle can unpack it.
func (r *repository) proveSegment(ctx context.Context, name string) error {
	content, err := r.in.Read(ctx, name)
	if err != nil {
		return err
	}
	found := archived.FindStringSubmatch(path.Base(name))
	switch found[3] {
	case "gz":
		unpacked, err := gzip.NewReader(bytes.NewReader(content))
		if err != nil {
			return fmt.Errorf("segment %s: %w", name, err)
		}
		if content, err = io.ReadAll(io.LimitReader(unpacked, 2*mostOfText)); err != nil {
			return fmt.Errorf("segment %s: %w", name, err)
		}
	case "":
	default:
		return nil
	}
	if is := sha1.Sum(content); hex.EncodeToString(is[:]) != found[2] { //nolint:gosec // see above
		return fmt.Errorf("segment %s does not have the checksum in its name", name)
	}
	return nil
}
