package memory

import (
	"math"
	"strings"
	"testing"
)

func TestTooLittleMemoryIsNamed(t *testing.T) {
	const mib = 1 << 20
	for _, test := range []struct {
		space, data uint64
		group, want string
	}{
		{math.MaxUint64, math.MaxUint64, "", ""},
		{math.MaxUint64, math.MaxUint64, "max\n", ""},
		{2048 * mib, 256 * mib, "268435456\n", ""},
		{1000 * mib, math.MaxUint64, "max\n", "(ulimit -v) is 1000 MiB, and castle requires 2048 MiB"},
		{math.MaxUint64, 60 * mib, "", "(ulimit -d) is 60 MiB, and castle requires 256 MiB; raise it"},
		{math.MaxUint64, math.MaxUint64, "67108864\n", "container is 64 MiB, and castle requires 256 MiB"},
	} {
		got := tooLittle(test.space, test.data, test.group)
		if (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
			t.Errorf("%d, %d, %q: %q, want %q", test.space, test.data, test.group, got, test.want)
		}
	}
}
