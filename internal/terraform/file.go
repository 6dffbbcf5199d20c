package terraform

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ephemeral-castle/castle/internal/atomicfile"
)

// writePrivate writes a file that only its owner can read, whatever the umask
// and whatever mode the file had.
func writePrivate(path string, data []byte) error { return writeMode(path, data, 0o600) }

func writeMode(path string, data []byte, mode os.FileMode) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	// Before the first byte is in it.
	err = errors.Join(f.Chmod(mode), f.Truncate(0))
	if err == nil {
		_, err = f.Write(data)
	}
	return errors.Join(err, f.Close())
}

const lockPoll = 50 * time.Millisecond

// lockFile waits until this process alone holds the lock on a file and returns
// what releases it. The kernel releases it too when the process ends.
func lockFile(ctx context.Context, path string) (unlock func() error, err error) {
	if err := atomicfile.MkdirPrivate(filepath.Dir(path)); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return f.Close, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return nil, errors.Join(&os.PathError{Op: "lock", Path: path, Err: err}, f.Close())
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), f.Close())
		case <-time.After(lockPoll):
		}
	}
}
