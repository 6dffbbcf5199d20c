// Package etcd reads snapshots of etcd. A snapshot is etcd's database, a bbolt file, followed by the SHA-256
// of it, which etcd's server appends. It connects to nothing.
package etcd

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"go.etcd.io/bbolt"
)

// page is what a database is a multiple of, as etcd itself tells a snapshot with its hash from a copy of the
// database (etcdutl/snapshot/v3_snapshot.go, saveDB).
const page = 512

// Verify checks a snapshot and returns the revision of its newest change. It compares the hash at the end,
// opens the database and checks each page.
func Verify(path string) (revision int64, err error) {
	file, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	info, err := file.Stat()
	if err != nil {
		return 0, err
	}
	size := info.Size() - sha256.Size
	if size <= 0 || size%page != 0 {
		return 0, fmt.Errorf("the snapshot is cut short: %d bytes are no database and its hash", info.Size())
	}
	hash := sha256.New()
	if _, err := io.Copy(hash, io.LimitReader(file, size)); err != nil {
		return 0, err
	}
	end := make([]byte, sha256.Size)
	if _, err := io.ReadFull(file, end); err != nil {
		return 0, err
	}
	if !bytes.Equal(hash.Sum(nil), end) {
		return 0, errors.New("the snapshot is damaged: its content does not have the hash at its end")
	}
	return newest(path)
}

// newest checks the database and returns its newest revision, the first 8 bytes of the last key of the bucket
// with all changes (server/storage/mvcc/revision.go).
func newest(path string) (revision int64, err error) {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: time.Second})
	if err != nil {
		return 0, fmt.Errorf("the snapshot holds no database: %w", err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	err = db.View(func(tx *bbolt.Tx) error {
		var damaged error
		for problem := range tx.Check() {
			damaged = cmp.Or(damaged, problem)
		}
		if damaged != nil {
			return fmt.Errorf("the database in the snapshot is damaged: %w", damaged)
		}
		changes := tx.Bucket([]byte("key"))
		if changes == nil {
			return errors.New("the database in the snapshot is not that of etcd")
		}
		key, _ := changes.Cursor().Last()
		if len(key) < 8 {
			return errors.New("etcd's database in the snapshot holds no object")
		}
		revision = int64(binary.BigEndian.Uint64(key))
		return nil
	})
	return revision, err
}
