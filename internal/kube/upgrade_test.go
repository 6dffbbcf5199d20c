package kube

import (
	"reflect"
	"strings"
	"testing"

	"github.com/ephemeral-castle/castle/internal/gate"
)

func TestDeprecatedRequestsAreThoseThatTheReleaseRemoves(t *testing.T) {
	const metric = "apiserver_requested_deprecated_apis"
	f, other := newFakeAPI(t), newFakeAPI(t)
	f.answer("/metrics", 200, "# TYPE "+metric+" gauge\n"+metric+`{group="",removed_release="",`+
		`resource="componentstatuses",subresource="",version="v1"} 1`+"\n"+metric+
		`{group="flowcontrol.apiserver.k8s.io",removed_release="1.32",resource="flowschemas",`+
		`subresource="status",version="v1beta3"} 1`+"\n"+metric+
		`{group="later.k8s.io",removed_release="1.40",resource="later",subresource="",version="v1beta1"} 1`+
		"\nother 1\n")
	other.answer("/metrics", 200, metric+`{group="",removed_release="1.36",resource="x\u001b",`+
		`subresource="",version="v1"} 1`+"\n")
	target := gate.Target{Kubeconfig: f.kubeconfig()}
	address := strings.TrimPrefix(f.URL, "https://")
	got, err := DeprecatedRequests(t.Context(), target, []string{address,
		strings.TrimPrefix(other.URL, "https://")}, "v1.36.2")
	want := []string{"flowcontrol.apiserver.k8s.io/v1beta3 flowschemas/status (removed in 1.32)",
		`v1 x\u001b (removed in 1.36)`}
	if !reflect.DeepEqual(got, want) || err != nil {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	if got, err := DeprecatedRequests(t.Context(), target, []string{address}, "1.31.0"); len(got) > 0 ||
		err != nil {
		t.Errorf("for 1.31.0: %q, %v", got, err)
	}
	f.answer("/metrics", 403, failure(403, "Forbidden", `User "x" cannot get path "/metrics"`).body)
	if _, err := DeprecatedRequests(t.Context(), target, []string{address}, "1.36.0"); err == nil {
		t.Error("an API server that refuses is no error")
	}
}
