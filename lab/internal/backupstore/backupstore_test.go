package backupstore

import (
	"bytes"
	"crypto/sha512"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ephemeral-castle/castle/lab/internal/objectstore/objectstoretest"
)

// contents are a volume's snapshots, by name: their blocks by offset.
type contents map[string]map[int64][]byte

// snapshot is one of them.
type snapshot struct {
	all  contents
	name string
}

func (s snapshot) Has(other string) bool { return s.all[other] != nil }

func (s snapshot) Changed(since string) (offsets []int64, _ error) {
	for offset, block := range s.all[s.name] {
		if !bytes.Equal(s.all[since][offset], block) {
			offsets = append(offsets, offset)
		}
	}
	slices.Sort(offsets)
	return offsets, nil
}

func (s snapshot) Block(offset int64) ([]byte, error) { return s.all[s.name][offset], nil }

func filled(text string) []byte {
	return append([]byte(text), make([]byte, BlockSize-len(text))...)
}

// options of a store in a server's bucket.
func options(s *objectstoretest.Server) Options {
	return Options{URL: "s3://" + objectstoretest.Bucket + "@" + objectstoretest.Region + "/one",
		Credentials: map[string]string{AccessKey: objectstoretest.AccessKey,
			SecretKey: objectstoretest.SecretKey, Endpoints: s.Endpoint, Cert: string(s.Authority)}}
}

func open(t *testing.T, s *objectstoretest.Server) *Store {
	t.Helper()
	store, err := Open(t.Context(), options(s))
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// create makes a backup of a volume "data".
func create(t *testing.T, s *Store, name, mode string, from snapshot) []string {
	t.Helper()
	written, err := s.Create(t.Context(), Request{Name: name, SnapshotName: from.name,
		Volume: Volume{
			Name:              "data",
			Size:              1 << 30,
			CompressionMethod: Compression,
			StorageClassName:  "longhorn",
			DataEngine:        "v1",
		},
		SnapshotCreatedAt: "2026-02-01T12:00:0" + fmt.Sprint(len(name)%10) + "Z",
		Labels:            map[string]string{"longhorn.io/volume-access-mode": "rwo"},
		Parameters:        map[string]string{ParameterMode: mode, ParameterBlockSize: "2097152"},
		Progress:          func(int) {}}, from)
	if err != nil {
		t.Fatal(err)
	}
	return written
}

// files are the objects of the bucket, by key.
func files(t *testing.T, s *objectstoretest.Server) (keys []string) {
	t.Helper()
	err := filepath.WalkDir(s.Folder, func(file string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			key, _ := filepath.Rel(s.Folder, file)
			keys = append(keys, key)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

func read(t *testing.T, s *objectstoretest.Server, key string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(s.Folder, key))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// home is the volume's folder: the checksum of "data" begins with 77c7.
const home = "one/backupstore/volumes/77/c7/data/"

var times = regexp.MustCompile(`"(CreatedTime)":"20[^"]*Z"`)

func TestTheLayoutIsThatOfLonghorn(t *testing.T) {
	server := objectstoretest.Start(t, "../../../bin")
	s := open(t, server)
	all := contents{"first": {0: filled("one"), 4 << 20: filled("two"), 6 << 20: filled("one")}}
	written := create(t, s, "backup-a", "incremental", snapshot{all, "first"})
	one, two := fmt.Sprintf("%x", sha512.Sum512(filled("one")))[:64],
		fmt.Sprintf("%x", sha512.Sum512(filled("two")))[:64]
	if !slices.Equal(written, []string{one, two}) {
		t.Errorf("written: %v", written)
	}
	block := func(sum string) string {
		return home + "blocks/" + sum[:2] + "/" + sum[2:4] + "/" + sum + ".blk"
	}
	want := []string{home + "backups/backup_backup-a.cfg", block(one), block(two), home + "volume.cfg"}
	slices.Sort(want)
	if got := files(t, server); !slices.Equal(got, want) {
		t.Errorf("objects:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	uploaded := len(read(t, server, block(one))) + len(read(t, server, block(two)))
	if got, want := times.ReplaceAllString(read(t, server, want[0]), `"$1":"…"`),
		`{"Name":"backup-a","VolumeName":"data","SnapshotName":"first",`+
			`"SnapshotCreatedAt":"2026-02-01T12:00:08Z",`+
			`"CreatedTime":"…","Size":"6291456","Labels":{"longhorn.io/volume-access-mode":"rwo"},`+
			`"Parameters":{"backup-block-size":"2097152","backup-mode":"incremental"},"IsIncremental":false,`+
			`"CompressionMethod":"lz4","NewlyUploadedDataSize":"`+fmt.Sprint(uploaded)+`",`+
			`"ReUploadedDataSize":"0","ProcessingBlocks":{},`+
			`"Blocks":[{"Offset":0,"BlockChecksum":"`+one+`"},`+
			`{"Offset":4194304,"BlockChecksum":"`+two+`"},{"Offset":6291456,"BlockChecksum":"`+one+`"}],`+
			`"SingleFile":{"FilePath":""}}`; got != want {
		t.Errorf("backup:\n%s\nwant\n%s", got, want)
	}
	if got, want := times.ReplaceAllString(read(t, server, home+"volume.cfg"), `"$1":"…"`),
		`{"Name":"data","Size":"1073741824","Labels":{"longhorn.io/volume-access-mode":"rwo"},`+
			`"CreatedTime":"…",`+
			`"LastBackupName":"backup-a","LastBackupAt":"2026-02-01T12:00:08Z","BlockCount":"2",`+
			`"BackingImageName":"\"\"","BackingImageChecksum":"\"\"","CompressionMethod":"\"lz4\"",`+
			`"StorageClassName":"\"longhorn\"","DataEngine":"\"v1\""}`; got != want {
		t.Errorf("volume:\n%s\nwant\n%s", got, want)
	}
	if got := read(t, server, block(one)); !strings.HasPrefix(got, "\x04\x22\x4d\x18") || len(got) > 20<<10 {
		t.Errorf("a block is no frame of lz4: %x…, %d bytes", got[:8], len(got))
	}
	if lz4, err := exec.LookPath("lz4"); err == nil {
		out, err := exec.Command(lz4, "-dc", filepath.Join(server.Folder, block(one))).Output()
		if err != nil || !bytes.Equal(out, filled("one")) {
			t.Errorf("lz4 reads %d bytes: %v", len(out), err)
		}
	}
}

func TestABackupWritesOnlyWhatIsNew(t *testing.T) {
	server := objectstoretest.Start(t, "../../../bin")
	s := open(t, server)
	all := contents{"first": {0: filled("one"), 2 << 20: filled("two")},
		"second": {0: filled("one"), 2 << 20: filled("three"), 4 << 20: filled("one")}}
	create(t, s, "backup-a", "incremental", snapshot{all, "first"})
	if written := create(t, s, "backup-bb", "incremental", snapshot{all, "second"}); !slices.Equal(written,
		[]string{Checksum(filled("three"))}) {
		t.Errorf("written: %v", written)
	}
	second, err := s.Backup(t.Context(), "data", "backup-bb")
	if err != nil || !second.IsIncremental || len(second.Blocks) != 3 || second.ProcessingBlocks != nil {
		t.Errorf("second: %+v, %v", second, err)
	}
	if written := create(t, s, "backup-cc", Full, snapshot{all, "second"}); len(written) != 2 {
		t.Errorf("a full backup has written %v", written)
	}
	third, err := s.Backup(t.Context(), "data", "backup-cc")
	if err != nil || third.IsIncremental || third.ReUploadedDataSize == 0 ||
		third.NewlyUploadedDataSize != 0 {
		t.Errorf("full: %+v, %v", third, err)
	}
	for _, name := range []string{"backup-a", "backup-cc"} {
		if err := s.Delete(t.Context(), "data", name); err != nil {
			t.Fatal(err)
		}
	}
	v, _, err := s.Volume(t.Context(), "data")
	if err != nil || v.LastBackupName != "backup-bb" || v.BlockCount != 2 {
		t.Errorf("volume: %+v, %v", v, err)
	}
	if got := len(files(t, server)); got != 4 { // the volume, a backup, two blocks
		t.Errorf("%d objects are left: %v", got, files(t, server))
	}
	if err := s.DeleteVolume(t.Context(), "data"); err != nil || len(files(t, server)) > 0 {
		t.Errorf("left: %v, %v", files(t, server), err)
	}
}

func TestARestoreIsExactOrFails(t *testing.T) {
	server := objectstoretest.Start(t, "../../../bin")
	s := open(t, server)
	want := map[int64][]byte{0: filled("one"), 8 << 20: filled("two")}
	create(t, s, "backup-a", "incremental", snapshot{contents{"first": want}, "first"})
	got := map[int64][]byte{}
	restore := func(volume, name string) error {
		return s.Restore(t.Context(), volume, name, func(int) {}, func(offset int64, block []byte) error {
			got[offset] = block
			return nil
		})
	}
	if err := restore("data", "backup-a"); err != nil || len(got) != 2 || !bytes.Equal(got[0], want[0]) ||
		!bytes.Equal(got[8<<20], want[8<<20]) {
		t.Errorf("%d blocks, %v", len(got), err)
	}
	sum := Checksum(want[0])
	file := blockFile("data", sum)
	if err := os.WriteFile(filepath.Join(server.Folder, "one", file),
		[]byte(read(t, server, "one/"+blockFile("data", Checksum(want[8<<20])))), 0o600); err != nil {
		t.Fatal(err)
	}
	fails(t, restore("data", "backup-a"), "failed to decompress and verify block "+file+" with checksum "+sum+
		": decompression verification failed for block "+file+": checksum verification failed for block")
	if err := s.Lose(t.Context(), "data", sum); err != nil {
		t.Fatal(err)
	}
	fails(t, restore("data", "backup-a"), "failed after 7 attempts: failed to read block "+file+
		": failed to get object: one/"+file+": AWS Error: NoSuchKey The specified key does not exist.")
	fails(t, restore("data", "absent"), "cannot find "+backupFile("data", "absent")+" in backupstore")
	fails(t, restore("absent", "backup-a"), "Source volume doesn't exist in backupstore: cannot find "+
		"backupstore/volumes/")
}

func fails(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error: %v, want %s", err, want)
	}
}

func TestAStoreThatCannotBeReachedSaysWhy(t *testing.T) {
	server, other := objectstoretest.Start(t, "../../../bin"), objectstoretest.Start(t, "../../../bin")
	for key, c := range map[string]struct{ value, want string }{
		SecretKey: {"wrong", "error: AWS Error: SignatureDoesNotMatch "},
		AccessKey: {"", "could not backup to s3, missing [AWS_ACCESS_KEY_ID] in the secret"},
		Endpoints: {"https://localhost:1", "connect: connection refused"},
		Cert:      {string(other.Authority), "x509: certificate signed by unknown authority"},
	} {
		o := options(server)
		o.Credentials[key] = c.value
		_, err := Open(t.Context(), o)
		fails(t, err, c.want)
		if key == SecretKey {
			fails(t, err, "failed to list objects with param: ")
		}
	}
	o := options(server)
	o.URL = strings.Replace(o.URL, "tazlab", "absent", 1)
	_, err := Open(t.Context(), o)
	fails(t, err, "AWS Error: NoSuchBucket ")
	o.URL = "s3://tazlab@eu-south-1"
	_, err = Open(t.Context(), o)
	fails(t, err, "invalid URL. Must be either s3://bucket@region/path/, or s3://bucket/path")
}

func TestALockExcludesTheOtherType(t *testing.T) {
	s := open(t, objectstoretest.Start(t, "../../../bin"))
	one, err := s.lock(t.Context(), "data", creates)
	if err != nil {
		t.Fatal(err)
	}
	two, err := s.lock(t.Context(), "data", creates)
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.lock(t.Context(), "data", deletes)
	fails(t, err, "when performing backup delete, please try again later")
	if err := errors.Join(one(), two()); err != nil {
		t.Fatal(err)
	}
	three, err := s.lock(t.Context(), "data", deletes)
	if err != nil {
		t.Fatal(err)
	}
	if err := three(); err != nil {
		t.Fatal(err)
	}
}
