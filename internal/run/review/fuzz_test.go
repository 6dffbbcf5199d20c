package review

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/ephemeral-castle/castle/internal/state/commits"
)

// FuzzSavedPlan damages the file of a saved plan. Reading it returns the same plan, or an
// error that names the file.
func FuzzSavedPlan(f *testing.F) {
	saved := &SavedPlan{Path: filepath.Join(f.TempDir(), "blue.plan"),
		Stages: []SavedStage{{Name: "platform", Saved: []byte("a plan of Terraform")}, {Name: "metallb"}}}
	if err := saved.Write(commits.Encryption{}); err != nil {
		f.Fatal(err)
	}
	whole, err := os.ReadFile(saved.Path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(uint16(0), uint16(0), []byte{})
	f.Add(uint16(len(whole)/2), uint16(9000), []byte{})
	f.Add(uint16(40), uint16(1), []byte("x"))
	f.Add(uint16(len(whole)-30), uint16(1), []byte{0xff})
	size := bytes.LastIndex(whole, []byte("PK\x01\x02")) + 24 // of a part, in the archive's directory
	f.Add(uint16(size), uint16(4), []byte{0xff, 0xff, 0xff, 0x7f})
	f.Fuzz(func(t *testing.T, at, cut uint16, insert []byte) {
		from := min(int(at), len(whole))
		damaged := append(append(whole[:from:from], insert...), whole[min(from+int(cut), len(whole)):]...)
		path := filepath.Join(t.TempDir(), "blue.plan")
		if err := os.WriteFile(path, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		read, err := ReadSavedPlan(path, commits.Encryption{})
		if err != nil {
			if !strings.Contains(err.Error(), path) {
				t.Errorf("no file is named: %v", err)
			}
			return
		}
		read.Path, read.Digest = saved.Path, saved.Digest
		if !reflect.DeepEqual(read, saved) {
			t.Errorf("read %+v, want %+v", read, saved)
		}
	})
}
