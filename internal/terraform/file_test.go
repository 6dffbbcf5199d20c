package terraform

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func TestReplaceByManyAtOnceLeavesOneOfThemWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "found.json")
	var all sync.WaitGroup
	for _, letter := range []string{"a", "b", "c", "d"} {
		all.Go(func() {
			for range 50 {
				if err := replace(path, []byte(strings.Repeat(letter, 1000))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	got := get(t, path)
	if got != strings.Repeat(got[:1], 1000) {
		t.Errorf("mixed: %q", got)
	}
	if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 1 {
		t.Errorf("left: %v, %v", entries, err)
	}
}
