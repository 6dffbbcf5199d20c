package longhorn

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"regexp"
	"slices"

	"github.com/ephemeral-castle/castle/internal/store"
	"github.com/ephemeral-castle/castle/internal/survivor/bucket"
)

// The fields that castle reads of the files in Longhorn's backup store, whose layout is that of
// longhorn/backupstore (config.go, deltablock.go and util.go).
type (
	volumeFile struct {
		Name string
		Size int64 `json:",string"`
	}
	backupFile struct {
		VolumeName  string
		CreatedTime string // empty while it is being uploaded
		Size        int64  `json:",string"`
		Blocks      []block
	}
	block struct {
		Offset        int64
		BlockChecksum string
	}
)

// checksums matches the checksum of a block, which is a part of its name.
var checksums = regexp.MustCompile(`^[0-9a-f]{64}$`)

// checksum is Longhorn's: the first half of SHA-512.
func checksum(of []byte) string {
	sum := sha512.Sum512(of)
	return hex.EncodeToString(sum[:])[:64]
}

// folderOf is where a volume's backups are below the path of the backup target.
func folderOf(base, volume string) string {
	sum := checksum([]byte(volume))
	return bucket.Key(base, "backupstore/volumes", sum[:2], sum[2:4], volume)
}

// content is what a backup holds.
type content struct {
	digest string // of the checksums of all blocks that are not empty
	bytes  int64
}

// errBlock is why a backup is not whole. An incremental one names a block that the bucket once had, and does
// not write it again; a full one does.
var errBlock = errors.New("is empty or not in the bucket")

// readBackup returns the content of a backup, all of which is in the store.
func readBackup(ctx context.Context, in store.Store, folder, volume, backup string) (c content, err error) {
	of, err := readFile[volumeFile](ctx, in, folder+"/volume.cfg")
	if err != nil {
		return c, err
	}
	b, err := readFile[backupFile](ctx, in, folder+"/backups/backup_"+backup+".cfg")
	switch {
	case err != nil:
		return c, err
	case of.Name != volume || b.VolumeName != volume:
		return c, fmt.Errorf("it is a backup of volume %s", cmp.Or(b.VolumeName, of.Name))
	case b.CreatedTime == "":
		return c, errors.New("its upload has not ended")
	}
	sizes, err := blockSizes(ctx, in, folder+"/blocks/", b.Blocks)
	if err != nil {
		return c, err
	}
	for _, one := range b.Blocks {
		name := one.BlockChecksum
		if !checksums.MatchString(name) {
			return c, fmt.Errorf("%q is no checksum of a block", name)
		}
		size, there := sizes[folder+"/blocks/"+name[:2]+"/"+name[2:4]+"/"+name+".blk"]
		if !there || size == 0 {
			return c, fmt.Errorf("block %s (offset %d) %w", name, one.Offset, errBlock)
		}
	}
	return content{digest: digest(b.Blocks), bytes: b.Size}, nil
}

func readFile[T any](ctx context.Context, in store.Store, key string) (v T, err error) {
	text, err := in.Read(ctx, key)
	if errors.Is(err, fs.ErrNotExist) {
		return v, fmt.Errorf("%s is not in the bucket", key)
	}
	if err == nil {
		err = json.Unmarshal(text, &v)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", key, err)
	}
	return v, err
}

// mostListed is how many blocks castle lists at once: a list has to end within the time of one operation.
const mostListed = 20_000

// blockSizes lists the blocks in a folder, at least those of a backup.
func blockSizes(ctx context.Context, in store.Store, folder string, of []block) (map[string]int64, error) {
	if len(of) <= mostListed {
		return in.Sizes(ctx, folder)
	}
	all, listed := map[string]int64{}, map[string]bool{}
	for _, one := range of {
		if name := one.BlockChecksum; checksums.MatchString(name) && !listed[name[:2]] {
			some, err := in.Sizes(ctx, folder+name[:2]+"/")
			if err != nil {
				return nil, err
			}
			maps.Copy(all, some)
			listed[name[:2]] = true
		}
	}
	return all, nil
}

// digest sums the offsets and checksums of blocks. A block of zeros counts as none: a restored volume may
// have it as a hole, which Longhorn does not back up.
func digest(of []block) string {
	empty := map[string]bool{}
	for _, size := range []int{2 << 20, 16 << 20} { // the sizes that Longhorn knows
		empty[checksum(make([]byte, size))] = true
	}
	sum := sha256.New()
	for _, one := range slices.SortedFunc(slices.Values(of), func(a, b block) int {
		return cmp.Compare(a.Offset, b.Offset)
	}) {
		if !empty[one.BlockChecksum] {
			fmt.Fprintf(sum, "%d %s\n", one.Offset, one.BlockChecksum)
		}
	}
	return hex.EncodeToString(sum.Sum(nil))
}
