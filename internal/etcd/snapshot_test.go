package etcd

import (
	"crypto/sha256"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/bbolt"
)

// write writes a snapshot with a database as etcd's, of which change makes another file.
func write(t *testing.T, bucket string, change func([]byte) []byte) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "snapshot")
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists([]byte(bucket))
		for revision := uint64(1); err == nil && revision <= 300; revision++ {
			key := append(binary.BigEndian.AppendUint64(nil, revision), '_')
			err = b.Put(binary.BigEndian.AppendUint64(key, 0), []byte("value"))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	hash := sha256.Sum256(content)
	if err := os.WriteFile(path, change(append(content, hash[:]...)), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestVerify(t *testing.T) {
	same := func(b []byte) []byte { return b }
	if revision, err := Verify(write(t, "key", same)); err != nil || revision != 300 {
		t.Errorf("a good snapshot: revision %d, %v", revision, err)
	}
	flip := func(at int) func([]byte) []byte {
		return func(b []byte) []byte { b[at] ^= 1; return b }
	}
	for want, path := range map[string]string{
		"is cut short: 12345 bytes":    write(t, "key", func(b []byte) []byte { return b[:12345] }),
		"is cut short: 0 bytes":        write(t, "key", func(b []byte) []byte { return nil }),
		"does not have the hash":       write(t, "key", flip(5000)),
		"not have the hash at its end": write(t, "key", func(b []byte) []byte { return b[:512*20+32] }),
		"is not that of etcd":          write(t, "other", same),
		"holds no database": write(t, "key", func([]byte) []byte {
			none := make([]byte, 4*512)
			hash := sha256.Sum256(none)
			return append(none, hash[:]...)
		}),
	} {
		if _, err := Verify(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
