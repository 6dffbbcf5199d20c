package tfeval

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/fstest"
)

func TestResourcesWithProvisioners(t *testing.T) {
	with := func(name string) *fstest.MapFile {
		text := fmt.Sprintf("resource \"a\" %q {\n  provisioner \"local-exec\" {\n  }\n}\n", name)
		return &fstest.MapFile{Data: []byte(text)}
	}
	dir := filepath.Join(t.TempDir(), "work")
	if err := os.CopyFS(dir, fstest.MapFS{
		"main.tf":     with("b"),
		"plain.tf":    {Data: []byte("resource \"a\" \"plain\" {}\n")},
		"sub/main.tf": with("sub"),
		"other.tf.json": {Data: []byte(
			`{"resource":{"a":{"json":{"provisioner":{"local-exec":{}}},"no":{}}}}`)},
		"broken.tf": {Data: []byte("resource \"a\" {")},
		"notes.txt": with("no"),

		".terraform/modules/far/main.tf": with("far"),
		".terraform/providers/x/main.tf": with("no"),
	}); err != nil {
		t.Fatal(err)
	}
	got, err := Provisioned(dir)
	slices.Sort(got)
	if want := []string{"a.b", "a.far", "a.json", "a.sub"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
}
