package backupstore

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"time"
)

// attempts are the pauses of Longhorn after failed attempts to read a block.
func attempts() []time.Duration {
	return []time.Duration{time.Second, 5 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute,
		5 * time.Minute}
}

// Restore reads a backup, and hands out its blocks.
func (s *Store) Restore(ctx context.Context, volume, name string, progress func(percent int),
	write func(offset int64, block []byte) error) (err error) {
	unlock, err := s.lock(ctx, volume, creates)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	v, _, err := s.Volume(ctx, volume)
	if err != nil {
		//lint:ignore ST1005 these are Longhorn's words
		return fmt.Errorf("Source volume doesn't exist in backupstore: %w", err)
	}
	if v.Size == 0 {
		return fmt.Errorf("invalid volume size %v", v.Size)
	}
	b, err := s.Backup(ctx, volume, name)
	if err != nil &&
		!errors.Is(err, ErrInProgress) { // Longhorn restores what an unfinished one names: nothing
		return err
	}
	if v.Size%BlockSize != 0 {
		return fmt.Errorf("volume size %v is not a multiple of block size %v", v.Size, BlockSize)
	}
	for i, one := range b.Blocks {
		block, err := s.block(ctx, volume, b.CompressionMethod, one.BlockChecksum)
		if err != nil {
			return fmt.Errorf("failed to decompress and verify block %v with checksum %v: %w",
				blockFile(volume, one.BlockChecksum), one.BlockChecksum, err)
		}
		if err := write(one.Offset, block); err != nil {
			return err
		}
		progress(min(95*(i+2)/len(b.Blocks), 95))
	}
	return nil
}

// block reads a block. One with the wrong content is read once, and one that is not there again and again.
func (s *Store) block(ctx context.Context, volume, method, sum string) ([]byte, error) {
	file := blockFile(volume, sum)
	for attempt := 0; ; attempt++ {
		content, err := s.get(ctx, file)
		if err != nil {
			err = fmt.Errorf("failed to read block %v: %w", file, err)
		} else {
			var block []byte
			if block, err = plain(method, content, sum); err == nil {
				return block, nil
			}
			err = fmt.Errorf("decompression verification failed for block %v: %w", file, err)
		}
		switch {
		case errors.Is(err, errBlock):
			return nil, err
		case attempt == len(attempts()):
			return nil, fmt.Errorf("failed after %d attempts: %w", attempt+1, err)
		}
		if err := s.pause(ctx, attempts()[attempt]); err != nil {
			return nil, err
		}
	}
}

// The types of locks: those of one type exclude those of the other.
const (
	creates = 1 // or restores
	deletes = 2
)

const lockLasts = 150 * time.Second

// lock is the file of a lock.
type lock struct {
	Name     string
	Type     int
	Acquired bool
}

// lock takes a lock, or fails at once if one of the other type has been taken.
func (s *Store) lock(ctx context.Context, volume string, kind int) (unlock func() error, err error) {
	var id [8]byte
	rand.Read(id[:]) //nolint:errcheck // it never fails
	own := lock{Name: "lock-" + hex.EncodeToString(id[:]), Type: kind}
	file := func(name string) string { return Folder(volume) + "locks/" + name + lockSuffix }
	// It is given back even if the caller has been stopped.
	unlock = func() error { return s.remove(context.WithoutCancel(ctx), file(own.Name)) }
	if err := s.save(ctx, file(own.Name), own); err != nil {
		return nil, err
	}
	if err := s.pause(ctx, 2*time.Second); err != nil {
		return nil, errors.Join(err, unlock())
	}
	mine, _ := s.modified(ctx, file(own.Name))
	files, err := s.list(ctx, Folder(volume)+"locks/")
	if err != nil {
		return nil, errors.Join(err, unlock())
	}
	for _, name := range names(files, "", lockSuffix) {
		var other lock
		if err := s.load(ctx, file(name), &other); err != nil || other.Type == kind {
			continue
		}
		at, _ := s.modified(ctx, file(name))
		first := other.Acquired || at.Before(mine) || at.Equal(mine) && other.Name < own.Name
		if first && time.Since(at) <= lockLasts {
			what := map[int]string{creates: "create/restore", deletes: "delete"}[kind]
			return nil, errors.Join(
				fmt.Errorf("failed to acquire lock %v when performing backup %v, please try "+
					"again later", file(own.Name), what),
				unlock(),
			)
		}
	}
	own.Acquired = true
	if err := s.save(ctx, file(own.Name), own); err != nil {
		return nil, errors.Join(err, unlock())
	}
	return unlock, nil
}
