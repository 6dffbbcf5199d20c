package ownfile

import (
	"testing"

	"golang.org/x/sys/unix"
)

// Before Linux 5.6 there is no openat2, and filters of containers refuse it.
func TestWithoutOpenat2(t *testing.T) {
	defer func() { openat2 = unix.Openat2 }()
	for _, refused := range []error{unix.ENOSYS, unix.EPERM} {
		openat2 = func(int, string, *unix.OpenHow) (int, error) { return -1, refused }
		t.Run(refused.Error(), func(t *testing.T) {
			TestWhatIsNoFileIsRefused(t)
			TestNoPartOfAPathMayBeALink(t)
			TestAHardLinkIsOnlyRead(t)
		})
	}
}
