package kube

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// revision puts the Secret of one revision of a Helm release.
func (f *fakeAPI) revision(t *testing.T, namespace, name, number, status, resourceVersion string) string {
	t.Helper()
	at := "/api/v1/namespaces/" + namespace + "/secrets/sh.helm.release.v1." + name + ".v" + number
	f.add(t, at, fmt.Sprintf(`
type: helm.sh/release.v1
metadata:
  uid: uid-of-%s
  resourceVersion: %q
  labels: {owner: helm, name: %[1]s, status: %[3]s, version: %[4]q}
data: {release: c2VjcmV0}
`, name, resourceVersion, status, number))
	return at
}

func TestUnfinishedReleasesAreFoundAndNothingElse(t *testing.T) {
	f := newFakeAPI(t)
	f.serves("v1", "Secret", "secrets", true)
	f.revision(t, "metallb-system", "metallb", "1", "deployed", "1")
	f.revision(t, "metallb-system", "metallb", "2", "pending-upgrade", "2")
	f.revision(t, "flux-system", "flux2", "1", "pending-install", "3")
	f.revision(t, "storage", "longhorn", "7", "pending-rollback", "4")
	f.revision(t, "storage", "old", "1", "failed", "5")
	f.add(t, "/api/v1/namespaces/storage/secrets/mine",
		"{type: Opaque, metadata: {labels: {owner: helm, name: mine, status: pending-install}}}")
	found, err := PendingReleases(t.Context(), gate.Target{Kubeconfig: f.kubeconfig()})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range found {
		got = append(got, r.Namespace+"/"+r.Name+" "+r.Status)
	}
	want := "flux-system/flux2 pending-install, metallb-system/metallb pending-upgrade, storage/longhorn " +
		"pending-rollback"
	if strings.Join(got, ", ") != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if len(f.asked) != 1 {
		t.Errorf("it takes more than one question: %q", f.asked)
	}
}

func TestSecretsWithTheirDataAreNotRead(t *testing.T) {
	f := newFakeAPI(t)
	f.answer("/api/v1/secrets", 200, `{"kind":"SecretList","items":[{"data":{"release":"c2VjcmV0"}}]}`)
	found, err := PendingReleases(t.Context(), gate.Target{Kubeconfig: f.kubeconfig()})
	if err == nil || len(found) > 0 || strings.Contains(err.Error(), "c2VjcmV0") {
		t.Errorf("got %v, %v", found, err)
	}
}

func TestAnUnfinishedReleaseIsRemovedOnlyAsItWasListed(t *testing.T) {
	f := newFakeAPI(t)
	f.serves("v1", "Secret", "secrets", true)
	target := gate.Target{Kubeconfig: f.kubeconfig()}
	dead := f.revision(t, "a", "dead", "1", "pending-install", "1")
	f.revision(t, "b", "living", "1", "pending-install", "2")
	gone := f.revision(t, "c", "gone", "1", "pending-install", "3")
	found, err := PendingReleases(t.Context(), target)
	if err != nil || len(found) != 3 {
		t.Fatalf("got %v, %v", found, err)
	}
	living := f.revision(t, "b", "living", "1", "deployed", "4") // its Helm has ended
	f.mu.Lock()
	delete(f.objects, gone)
	f.mu.Unlock()
	for i, want := range []bool{true, false, false} {
		removed, err := RemovePendingRelease(t.Context(), target, found[i])
		if err != nil || removed != want {
			t.Errorf("%s: removed is %v, want %v (%v)", found[i].Name, removed, want, err)
		}
	}
	if f.objects[dead] != nil || f.objects[living] == nil {
		t.Errorf("left: %v", f.objects)
	}
}
