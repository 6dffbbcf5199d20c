package state

import (
	"slices"
	"testing"
)

func TestSwapIsNamedUnlessItIsInMemory(t *testing.T) {
	const table = `Filename				Type		Size		Used		Priority
/dev/sda2                               partition	8388604		0		-2
/dev/zram0                              partition	4194300		0		100
/swap/file	file	1048572	0	-3
`
	if got := swapDevices(table); !slices.Equal(got, []string{"/dev/sda2", "/swap/file"}) {
		t.Error(got)
	}
	const mounts = `25 1 254:0 / / rw,relatime - ext4 /dev/vda rw
41 25 0:22 / /dev/shm rw,nosuid shared:4 - tmpfs tmpfs rw,size=24684084k,inode64
60 25 0:51 / /run/user/1000 rw,nosuid shared:9 - tmpfs tmpfs rw,size=4936812k,noswap,inode64
`
	if neverSwapped(mounts, 0, 22) || !neverSwapped(mounts, 0, 51) || neverSwapped(mounts, 9, 9) {
		t.Error("noswap counts for its own file system only")
	}
}
