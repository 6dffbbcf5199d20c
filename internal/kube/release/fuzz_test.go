package release

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"testing"
)

// revision is what a Secret of Helm holds for a manifest.
func revision(t testing.TB, manifest string) string {
	t.Helper()
	text, err := json.Marshal(map[string]any{"name": "metallb", "manifest": manifest})
	if err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if _, err := w.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	once := base64.StdEncoding.EncodeToString(packed.Bytes())
	return base64.StdEncoding.EncodeToString([]byte(once))
}

func TestARevisionIsDecodedToItsObjects(t *testing.T) {
	manifest := "---\n# Source: a\napiVersion: v1\nkind: Secret\nmetadata: {name: a}\n---\n" +
		"apiVersion: v1\nkind: List\nitems: [{kind: Service, metadata: {name: b}}]\n---\n"
	text, err := decode(revision(t, manifest))
	if err != nil || string(text) != manifest {
		t.Fatalf("decoded %q (%v)", text, err)
	}
	objects, err := parse(text)
	if err != nil || len(objects) != 2 || objects[0].GetName() != "a" || objects[1].GetKind() != "Service" {
		t.Errorf("parsed %v (%v)", objects, err)
	}
}

// FuzzManifest reads what a Secret of Helm may hold. A part that cannot be read makes an error, never fewer
// objects.
func FuzzManifest(f *testing.F) {
	for _, seed := range []string{
		"apiVersion: v1\nkind: Secret\nmetadata: {name: a}\n", "---\n---\n", "a: [",
		"kind: List\nitems: [1]\n", "kind: List\nitems: [{kind: A}]\n", "null", "[]", "\x00", "a: &a [*a]",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, manifest string) {
		objects, err := parse([]byte(manifest + "\n---\n{kind: ConfigMap, metadata: {name: last}}\n"))
		if err == nil && (len(objects) == 0 || objects[len(objects)-1].GetName() != "last") {
			t.Errorf("%d objects without the last one", len(objects))
		}
		_, _ = decode(manifest) //nolint:errcheck // it must not panic
	})
}
