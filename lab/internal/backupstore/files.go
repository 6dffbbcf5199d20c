package backupstore

import (
	"bytes"
	"context"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/pierrec/lz4/v4"
)

// BlockSize is that of a block, in bytes.
const BlockSize = 2 << 20

const (
	volumes      = "backupstore/volumes"
	backupPrefix = "backup_"
	configSuffix = ".cfg"
	blockSuffix  = ".blk"
	lockSuffix   = ".lck"
	// Compression is Longhorn's default.
	Compression = "lz4"
)

// The keys of a backup's Parameters.
const (
	ParameterMode      = "backup-mode"
	ParameterBlockSize = "backup-block-size"
	// Full is the mode of a backup that compares with none before it, and uploads all blocks again.
	Full = "full"
)

// Volume is the file volume.cfg. Strings with the option "string" are quoted twice, as Longhorn writes them.
type Volume struct {
	Name                 string
	Size                 int64 `json:",string"`
	Labels               map[string]string
	CreatedTime          string
	LastBackupName       string
	LastBackupAt         string
	BlockCount           int64  `json:",string"`
	BackingImageName     string `json:",string"`
	BackingImageChecksum string `json:",string"`
	CompressionMethod    string `json:",string"`
	StorageClassName     string `json:",string"`
	DataEngine           string `json:",string"`
}

// Backup is the file of a backup. Its CreatedTime is empty while it is made.
type Backup struct {
	Name                  string
	VolumeName            string
	SnapshotName          string
	SnapshotCreatedAt     string
	CreatedTime           string
	Size                  int64 `json:",string"`
	Labels                map[string]string
	Parameters            map[string]string
	IsIncremental         bool
	CompressionMethod     string
	NewlyUploadedDataSize int64 `json:",string"`
	ReUploadedDataSize    int64 `json:",string"`

	ProcessingBlocks *struct{}  // {} in a full backup, else null
	Blocks           []Block    `json:",omitempty"`
	SingleFile       singleFile // unused
}

// Block is where a block belongs in the volume.
type Block struct {
	Offset        int64
	BlockChecksum string
}

type singleFile struct{ FilePath string }

// Checksum names a block, and gives a volume its folders: the first half of SHA-512, in hexadecimal digits.
func Checksum(content []byte) string {
	sum := sha512.Sum512(content)
	return hex.EncodeToString(sum[:])[:64]
}

// Folder is where the files of a volume lie.
func Folder(volume string) string {
	sum := Checksum([]byte(volume))
	return path.Join(volumes, sum[:2], sum[2:4], volume) + "/"
}

func volumeFile(volume string) string { return Folder(volume) + "volume" + configSuffix }

func backupFile(volume, name string) string {
	return Folder(volume) + "backups/" + backupPrefix + name + configSuffix
}

func blockFile(volume, sum string) string {
	return Folder(volume) + path.Join("blocks", sum[:2], sum[2:4], sum+blockSuffix)
}

var validName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]+$`)

// ValidName reports whether Longhorn takes a name for one.
func ValidName(name string) bool { return validName.MatchString(name) }

// EncodeURL is the URL of a backup, or of a volume's backups, in the store at another one.
func EncodeURL(name, volume, store string) string {
	u, err := url.Parse(store)
	if err != nil {
		return ""
	}
	query := u.Query()
	query.Add("volume", volume)
	if name != "" {
		query.Add("backup", name)
	}
	u.RawQuery = query.Encode()
	return u.String()
}

// DecodeURL takes the URL of a backup apart.
func DecodeURL(text string) (name, volume string, err error) {
	u, err := url.Parse(text)
	if err != nil {
		return "", "", err
	}
	name, volume = u.Query().Get("backup"), u.Query().Get("volume")
	if !ValidName(volume) {
		return "", "", fmt.Errorf("invalid volume name parsed, got %v", volume)
	}
	if name != "" && !ValidName(name) {
		return "", "", fmt.Errorf("invalid backup name parsed, got %v", name)
	}
	return name, volume, nil
}

// names are those of files with a prefix and a suffix.
func names(files []string, prefix, suffix string) (all []string) {
	for _, file := range files {
		name, hasPrefix := strings.CutPrefix(file, prefix)
		name, hasSuffix := strings.CutSuffix(name, suffix)
		if hasPrefix && hasSuffix && ValidName(name) {
			all = append(all, name)
		}
	}
	return all
}

// Volumes returns the names of the volumes with backups in the store.
func (s *Store) Volumes(ctx context.Context) ([]string, error) { return s.below(ctx, volumes) }

// below are the names in the folders of the folders in a folder.
func (s *Store) below(ctx context.Context, folder string) (all []string, err error) {
	first, err := s.list(ctx, folder)
	if err != nil {
		return nil, err
	}
	for _, one := range first {
		second, err := s.list(ctx, path.Join(folder, one))
		if err != nil {
			return nil, err
		}
		for _, two := range second {
			found, err := s.list(ctx, path.Join(folder, one, two))
			if err != nil {
				return nil, err
			}
			all = append(all, found...)
		}
	}
	slices.Sort(all)
	return all, nil
}

// Backups returns the names of a volume's backups, with those that are being made.
func (s *Store) Backups(ctx context.Context, volume string) ([]string, error) {
	files, err := s.list(ctx, Folder(volume)+"backups/")
	return names(files, backupPrefix, configSuffix), err
}

// Volume reads the file of a volume, and when it was written.
func (s *Store) Volume(ctx context.Context, volume string) (*Volume, time.Time, error) {
	v := &Volume{}
	if err := s.load(ctx, volumeFile(volume), v); err != nil {
		return nil, time.Time{}, err
	}
	at, _ := s.modified(ctx, volumeFile(volume))
	return v, at, nil
}

// ErrInProgress is a backup that is being made, or whose maker has died.
var ErrInProgress = errors.New("is still in progress")

// Backup reads the file of a backup.
func (s *Store) Backup(ctx context.Context, volume, name string) (*Backup, error) {
	b := &Backup{}
	if err := s.load(ctx, backupFile(volume, name), b); err != nil {
		return nil, err
	}
	if b.CreatedTime == "" {
		return b, fmt.Errorf("backup %v %w", b.Name, ErrInProgress)
	}
	return b, nil
}

func compressed(block []byte) ([]byte, error) {
	var out bytes.Buffer
	w := lz4.NewWriter(&out)
	_, err := w.Write(block)
	err = errors.Join(err, w.Close())
	return out.Bytes(), err
}

// plain is a block without its compression. The lab reads what it writes: lz4, or none.
func plain(method string, content []byte, sum string) ([]byte, error) {
	block, err := content, error(nil)
	switch method {
	case "none":
	case Compression:
		if block, err = io.ReadAll(lz4.NewReader(bytes.NewReader(content))); err != nil {
			return nil, fmt.Errorf("failed to read decompressed data: %w", err)
		}
	default:
		return nil, fmt.Errorf("unsupported decompression method: %v", method)
	}
	if Checksum(block) != sum {
		return nil, errBlock
	}
	return block, nil
}

var errBlock = errors.New("checksum verification failed for block")
