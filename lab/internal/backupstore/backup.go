package backupstore

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"
)

// Snapshot is the source of a backup.
type Snapshot interface {
	// Has reports whether another snapshot of the volume is there to compare with.
	Has(other string) bool
	// Changed returns the offsets of the blocks that differ from another snapshot, or of all if it is "".
	Changed(since string) ([]int64, error)
	// Block reads a block.
	Block(offset int64) ([]byte, error)
}

// Request is a backup to make.
type Request struct {
	Name              string
	Volume            Volume // as it is in the cluster
	SnapshotName      string
	SnapshotCreatedAt string
	Labels            map[string]string
	Parameters        map[string]string
	Progress          func(percent int)
}

func now() string { return time.Now().UTC().Format(time.RFC3339) }

// Create makes a backup of a snapshot, and returns the names of the blocks that it has written.
func (s *Store) Create(ctx context.Context, r Request, from Snapshot) (written []string, err error) {
	unlock, err := s.lock(ctx, r.Volume.Name, creates)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, unlock()) }()

	if _, there := s.modified(ctx, volumeFile(r.Volume.Name)); !there {
		r.Volume.CreatedTime = now()
		if err := s.save(ctx, volumeFile(r.Volume.Name), r.Volume); err != nil {
			return nil, err
		}
	}
	known, _, err := s.Volume(ctx, r.Volume.Name)
	if err != nil {
		return nil, err
	}
	last := s.last(ctx, r, known, from)
	since := ""
	if last != nil {
		since = last.SnapshotName
	}
	offsets, err := from.Changed(since)
	if err != nil {
		return nil, err
	}
	b := &Backup{Name: r.Name, VolumeName: known.Name, CompressionMethod: known.CompressionMethod}
	if err := s.save(ctx, backupFile(known.Name, r.Name), b); err != nil {
		return nil, err
	}
	added, err := s.upload(ctx, r, from, offsets, b, &written)
	if err != nil {
		return written, err
	}
	if b.IsIncremental = last != nil; last == nil {
		b.ProcessingBlocks = &struct{}{}
	} else {
		b.Blocks = merged(b.Blocks, last.Blocks)
	}
	b.SnapshotName, b.SnapshotCreatedAt, b.CreatedTime = r.SnapshotName, r.SnapshotCreatedAt, now()
	b.Size = int64(len(b.Blocks)) * BlockSize
	b.Labels, b.Parameters = r.Labels, r.Parameters
	if err := s.save(ctx, backupFile(known.Name, r.Name), b); err != nil {
		return written, err
	}
	known, _, err = s.Volume(ctx, known.Name)
	if err != nil {
		return written, err
	}
	known.LastBackupName, known.LastBackupAt = b.Name, b.SnapshotCreatedAt
	known.BlockCount += added
	known.Size, known.Labels, known.StorageClassName = r.Volume.Size, r.Labels, r.Volume.StorageClassName
	return written, s.save(ctx, volumeFile(known.Name), known)
}

// last is the backup with which another one compares; nil makes it a full one.
func (s *Store) last(ctx context.Context, r Request, v *Volume, from Snapshot) *Backup {
	if v.LastBackupName == "" || r.Parameters[ParameterMode] == Full {
		return nil
	}
	last := &Backup{}
	err := s.load(ctx, backupFile(v.Name, v.LastBackupName), last)
	if err != nil || last.SnapshotName == r.SnapshotName ||
		last.SnapshotName != "" && !from.Has(last.SnapshotName) {
		return nil
	}
	return last
}

// upload writes the blocks that the store does not have yet, or all of a full backup, and counts the new
// ones.
func (s *Store) upload(ctx context.Context, r Request, from Snapshot, offsets []int64, b *Backup,
	written *[]string) (added int64, err error) {
	done := map[string]bool{}
	for i, offset := range offsets {
		block, err := from.Block(offset)
		if err != nil {
			return added, err
		}
		sum := Checksum(block)
		b.Blocks = append(b.Blocks, Block{Offset: offset, BlockChecksum: sum})
		file := blockFile(r.Volume.Name, sum)
		_, there := s.modified(ctx, file)
		if !done[sum] && (!there || r.Parameters[ParameterMode] == Full) {
			content := block
			if b.CompressionMethod == Compression {
				if content, err = compressed(block); err != nil {
					return added, err
				}
			}
			if err := s.send(ctx, file, content); err != nil {
				return added, err
			}
			if *written = append(*written, sum); there {
				b.ReUploadedDataSize += int64(len(content))
			} else {
				b.NewlyUploadedDataSize += int64(len(content))
				added++
			}
		}
		done[sum] = true
		r.Progress(min(95*(i+2)/len(offsets), 95))
	}
	return added, nil
}

// merged are the blocks of the last backup with those that have changed since, by offset.
func merged(changed, last []Block) []Block {
	all := map[int64]Block{}
	for _, b := range slices.Concat(last, changed) {
		all[b.Offset] = b
	}
	return slices.SortedFunc(
		maps.Values(all),
		func(a, b Block) int { return cmp.Compare(a.Offset, b.Offset) },
	)
}

// Delete deletes a backup, and the blocks that no other one names. Like Longhorn, it keeps all blocks while
// it cannot know who needs them: a backup is being made, or cannot be read.
func (s *Store) Delete(ctx context.Context, volume, name string) (err error) {
	unlock, err := s.lock(ctx, volume, deletes)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	if err := s.remove(ctx, backupFile(volume, name)); err != nil {
		return err
	}
	v, _, err := s.Volume(ctx, volume)
	if err != nil {
		return err
	}
	rest, knows, err := s.remaining(ctx, volume)
	if err != nil {
		return err
	}
	if v.LastBackupName == name {
		v.LastBackupName, v.LastBackupAt = "", ""
		if latest := latest(rest); knows && latest != nil {
			v.LastBackupName, v.LastBackupAt = latest.Name, latest.SnapshotCreatedAt
		}
		if err := s.save(ctx, volumeFile(volume), v); err != nil {
			return err
		}
	}
	if !knows {
		return nil
	}
	return s.collect(ctx, v, rest)
}

// remaining are the backups of a volume; false if one is not complete or cannot be read.
func (s *Store) remaining(ctx context.Context, volume string) (all []*Backup, knows bool, err error) {
	left, err := s.Backups(ctx, volume)
	if err != nil {
		return nil, false, err
	}
	for _, name := range left {
		b, err := s.Backup(ctx, volume, name)
		if err != nil {
			return all, false, nil
		}
		all = append(all, b)
	}
	return all, true, nil
}

// latest is the backup of the newest snapshot; nil of none.
func latest(all []*Backup) (last *Backup) {
	for _, b := range all {
		if last == nil || b.SnapshotCreatedAt > last.SnapshotCreatedAt {
			last = b
		}
	}
	return last
}

// collect deletes the blocks that no backup names, and counts the others.
func (s *Store) collect(ctx context.Context, v *Volume, backups []*Backup) error {
	needed := map[string]bool{}
	for _, b := range backups {
		for _, block := range b.Blocks {
			needed[block.BlockChecksum] = true
		}
	}
	files, err := s.below(ctx, Folder(v.Name)+"blocks")
	if err != nil {
		return err
	}
	v.BlockCount = 0
	for _, sum := range names(files, "", blockSuffix) {
		if needed[sum] {
			v.BlockCount++
			continue
		}
		if err := s.remove(ctx, blockFile(v.Name, sum)); err != nil {
			return err
		}
	}
	return s.save(ctx, volumeFile(v.Name), v)
}

// DeleteVolume deletes all backups of a volume.
func (s *Store) DeleteVolume(ctx context.Context, volume string) error {
	all, err := s.Volumes(ctx)
	if err != nil || !slices.Contains(all, volume) {
		return err
	}
	unlock, err := s.lock(ctx, volume, deletes)
	if err != nil {
		return err
	}
	// Its lock is deleted with it.
	return errors.Join(s.remove(ctx, Folder(volume)), unlock())
}

// Lose deletes a block, whoever needs it, as a rule of the bucket may do.
func (s *Store) Lose(ctx context.Context, volume, sum string) error {
	return s.remove(ctx, blockFile(volume, sum))
}

// NotFound reports whether a file was not there: Longhorn recognises it by its words, too.
func NotFound(err error) bool { return err != nil && strings.Contains(err.Error(), "cannot find") }
