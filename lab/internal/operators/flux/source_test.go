package flux

import (
	"encoding/json"
	"net"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ephemeral-castle/castle/lab/internal/operators/cluster"
	"github.com/ephemeral-castle/castle/lab/internal/operators/clustertest"
	"github.com/ephemeral-castle/castle/lab/internal/sources"
)

// fetching is a Flux that applies what it fetches from a server, of one object and its Secret.
type fetching struct {
	stage  *clustertest.Stage
	flux   *flux
	at     schema.GroupVersionResource
	secret *corev1.Secret
}

func newFetching(t *testing.T, kind, spec string, secret *corev1.Secret) fetching {
	t.Helper()
	s := newStage(0, clustertest.Deployment("flux-system", "source-controller"),
		clustertest.Deployment("flux-system", "kustomize-controller"))
	takesApply(s)
	s.Create(t, sourcesOf(kind), `{"apiVersion":"source.toolkit.fluxcd.io/v1","kind":"`+kind+`",
		"metadata":{"name":"flux-system","namespace":"flux-system","uid":"2","generation":1},"spec":{`+spec+
		`,"secretRef":{"name":"flux-system"}}}`)
	s.Create(t, kustomizations(), strings.NewReplacer("GitRepository", kind, `"prune":true`,
		`"path":"./cluster","prune":true`).Replace(rootKustomization))
	secret.ObjectMeta = metav1.ObjectMeta{Namespace: "flux-system", Name: "flux-system"}
	s.Add(t, secret)
	// Nothing is in the fleet's own folder: what is applied was fetched.
	fleet := NewFleet(s.World, serving(s), "")
	return fetching{s, New(s.World, fleet, t.TempDir()), sourcesOf(kind), secret}
}

// change changes the Secret, and tries again.
func (f fetching) change(t *testing.T, data map[string]string) {
	t.Helper()
	f.secret.Data = map[string][]byte{}
	for name, value := range data {
		f.secret.Data[name] = []byte(value)
	}
	_, err := f.stage.World.Typed.CoreV1().Secrets("flux-system").Update(t.Context(), f.secret,
		metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	f.stage.Look(t, f.flux)
}

func (f fetching) refused(t *testing.T, reason, words string) {
	t.Helper()
	o := f.stage.Get(t, f.at, "flux-system", "flux-system")
	conditions, _, err := unstructured.NestedSlice(o.Object, "status", "conditions")
	if err != nil || len(conditions) == 0 {
		t.Fatalf("%v, %v", o.Object["status"], err)
	}
	for _, c := range conditions {
		one := c.(map[string]any)
		if one["type"] == "Ready" && (one["reason"] != reason ||
			!strings.Contains(one["message"].(string), words)) {
			t.Errorf("%s: %s; want %s: %s", one["reason"], one["message"], reason, words)
		}
	}
}

// applied wants the one object of the source, at its revision.
func (f fetching) applied(t *testing.T, revision string) {
	t.Helper()
	f.stage.Look(t, f.flux)
	f.stage.Look(t, f.flux)
	o := f.stage.Get(t, f.at, "flux-system", "flux-system")
	got := cluster.Text(o.Object, "status", "artifact", "revision")
	root := f.stage.Get(t, kustomizations(), "flux-system", "flux-system")
	if !strings.HasPrefix(got, revision) ||
		cluster.Text(root.Object, "status", "lastAppliedRevision") != got {
		t.Fatalf("artifact %q, root %v", got, root.Object["status"])
	}
	f.stage.Get(t, schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, "", "fetched")
}

func fleet(t *testing.T) string {
	return folder(t, map[string]string{
		"cluster/namespace.yaml": "apiVersion: v1\nkind: Namespace\nmetadata: { name: fetched }\n",
		".gitignore":             "*.log\n", "cluster/not.log": "no manifest",
	})
}

func newKeys(t *testing.T, ports ...uint16) sources.Keys {
	t.Helper()
	k, err := sources.NewKeys(ports, nil)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func knownHosts(t *testing.T, k sources.Keys) string {
	t.Helper()
	hosts, err := k.KnownHosts()
	if err != nil {
		t.Fatal(err)
	}
	return hosts
}

func TestFluxClonesOverSSHAndChecksBothKeys(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := uint16(l.Addr().(*net.TCPAddr).Port)
	own, foreign := newKeys(t, port), newKeys(t, port)
	g, err := sources.NewGit(t.Context(), t.TempDir(), fleet(t), []string{"main"})
	if err != nil {
		t.Fatal(err)
	}
	go g.ServeSSH(l, own) //nolint:errcheck // it ends with the test
	f := newFetching(t, "GitRepository", `"ref":{"branch":"main"},"url":"ssh://git@`+l.Addr().String()+
		`/me/fleet"`, &corev1.Secret{})

	f.change(t, map[string]string{"username": "git", "password": "token"})
	f.refused(t, "AuthenticationFailed", "invalid 'ssh' auth option: 'identity' is required")
	f.change(t, map[string]string{"identity": own.Deploy})
	f.refused(t, "AuthenticationFailed", "invalid 'ssh' auth option: 'known_hosts' is required")
	f.change(t, map[string]string{"identity": "no key", "known_hosts": knownHosts(t, own)})
	f.refused(t, "GitOperationFailed", "unable to construct auth method with options")
	f.change(t, map[string]string{"identity": own.Deploy, "known_hosts": knownHosts(t, foreign)})
	f.refused(t, "GitOperationFailed", "failed to checkout and determine revision: unable to clone '"+
		"ssh://git@"+
		l.Addr().String()+"/me/fleet': ssh: handshake failed: knownhosts: key mismatch")
	f.change(t, map[string]string{"identity": own.Deploy, "known_hosts": "github.com ssh-ed25519 " +
		strings.Fields(knownHosts(t, own))[2]})
	f.refused(t, "GitOperationFailed", "ssh: handshake failed: knownhosts: key is unknown")
	f.change(t, map[string]string{"identity": foreign.Deploy, "known_hosts": knownHosts(t, own)})
	f.refused(t, "GitOperationFailed", "ssh: handshake failed: ssh: unable to authenticate")
	f.change(t, map[string]string{"identity": own.Deploy, "known_hosts": knownHosts(t, own)})
	f.applied(t, "main@sha1:")
}

func TestFluxPullsAnArtifactByTagRangeOrDigest(t *testing.T) {
	k := newKeys(t)
	folder := fleet(t)
	server := httptest.NewServer(sources.Registry(folder, []string{"v2", ">=1.2 <2"}, k))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	auths := func(password string) map[string]string {
		text, err := json.Marshal(map[string]any{"auths": map[string]any{
			"https://ghcr.io": map[string]string{"username": "x", "password": "y"},
			host:              map[string]string{"username": sources.User, "password": password}}})
		if err != nil {
			t.Fatal(err)
		}
		return map[string]string{corev1.DockerConfigJsonKey: string(text)}
	}
	digest, err := sources.Digest(folder)
	if err != nil {
		t.Fatal(err)
	}
	for ref, want := range map[string]string{
		``: "latest@sha256:", `"ref":{"tag":"v2"},`: "v2@sha256:",
		`"ref":{"semver":">=1.0.0 <2.0.0"},`: "1.2.0@sha256:", `"ref":{"digest":"` + digest + `"},`: digest,
	} {
		f := newFetching(t, "OCIRepository", ref+`"insecure":true,"url":"oci://`+host+`/me/fleet"`,
			&corev1.Secret{Type: corev1.SecretTypeDockerConfigJson})
		f.change(t, auths("wrong"))
		reason := "OCIArtifactPullFailed"
		if strings.Contains(ref, "semver") {
			reason = "ReadOperationFailed"
		}
		f.refused(t, reason, "UNAUTHORIZED: authentication required")
		f.change(t, auths(k.Password))
		f.applied(t, want)
	}
	absent := "sha256:" + strings.Repeat("0a", 32)
	for ref, at := range map[string]string{
		`"tag":"v3"`: "v3", `"tag":"v2","digest":"` + absent + `"`: absent} {
		missing := newFetching(t, "OCIRepository",
			`"ref":{`+ref+`},"insecure":true,"url":"oci://`+host+`/me/fleet"`,
			&corev1.Secret{Type: corev1.SecretTypeDockerConfigJson})
		missing.change(t, auths(k.Password))
		missing.refused(t, "OCIArtifactPullFailed", "failed to determine artifact digest: GET "+server.URL+
			"/v2/me/fleet/manifests/"+at+": MANIFEST_UNKNOWN")
	}
}
