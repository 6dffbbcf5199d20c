package operators

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	typedfake "k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"

	"github.com/ephemeral-castle/castle/lab/internal/vault"
	"github.com/ephemeral-castle/castle/lab/internal/vault/vaulttest"

	"github.com/ephemeral-castle/castle/lab/internal/operators/cluster"
	"github.com/ephemeral-castle/castle/lab/internal/operators/clustertest"
)

// The facts come from External Secrets 2.9: providers/v1/vault, generators/v1/vault and
// pkg/controllers. The Vault is a real one, so its errors are real.

// landed is a cluster with a Vault outside, whose tokens Vault takes.
type landed struct {
	stage *clustertest.Stage
	vault *vault.Server
	e     *externalSecrets
	key   *ecdsa.PrivateKey
	asked []string // the audiences of the last token
}

const reader = `path "secret/*" { capabilities = ["read"] }`

func newLanded(t *testing.T) *landed {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	l := &landed{vault: vaulttest.Start(t, "../../.."), key: key,
		stage: newStage(0, clustertest.Deployment("external-secrets", "external-secrets"))}
	l.stage.World.Typed.(*typedfake.Clientset).PrependReactor("create", "serviceaccounts", l.sign)
	l.e = newExternalSecrets(l.stage.World, routes{}, http.DefaultClient)
	t.Cleanup(l.e.Close)

	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.vault.Fill(t.Context(), "secret", "app",
		map[string]string{"password": "open-sesame"}); err != nil {
		t.Fatal(err)
	}
	l.call(t, "sys/policies/acl/reader", map[string]any{"policy": reader})
	l.call(t, "sys/auth/jwt", map[string]any{"type": "jwt"})
	l.call(t, "auth/jwt/config",
		map[string]any{
			"jwt_validation_pubkeys": []string{
				string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})),
			},
		})
	for role, policy := range map[string]string{"reader": "reader", "nobody": "none"} {
		l.call(t, "auth/jwt/role/"+role, map[string]any{"role_type": "jwt", "user_claim": "sub",
			"bound_audiences": []string{"vault"}, "token_policies": []string{policy}})
	}
	// as in a rehearsal, where the lab itself trusts its stand-ins
	t.Setenv("SSL_CERT_FILE", l.vault.CAFile())
	bundle, err := os.ReadFile(l.vault.CAFile())
	if err != nil {
		t.Fatal(err)
	}
	token, err := l.vault.Token(t.Context(), "eso", reader)
	if err != nil {
		t.Fatal(err)
	}
	for _, namespace := range []string{"external-secrets", "app"} {
		l.stage.Add(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "vault"},
			Data: map[string][]byte{"ca.crt": bundle, "token": []byte(token),
				"wrong": []byte("hvs.wrong-token"), "nonsense": []byte("x")}})
	}
	l.stage.Add(t,
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "external-secrets", Name: "ca"},
			Data: map[string]string{"ca.crt": string(bundle)}})
	return l
}

func (l *landed) call(t *testing.T, path string, body any) {
	t.Helper()
	if err := l.vault.Call(t.Context(), http.MethodPost, path, body, nil); err != nil {
		t.Fatal(err)
	}
}

// sign is the API server's part in a TokenRequest.
func (l *landed) sign(action kubetesting.Action) (bool, runtime.Object, error) {
	if action.GetSubresource() != "token" {
		return false, nil, nil
	}
	made := action.(kubetesting.CreateActionImpl)
	request := made.GetObject().(*authenticationv1.TokenRequest)
	l.asked = request.Spec.Audiences
	claims, err := json.Marshal(map[string]any{
		"sub": "system:serviceaccount:" + made.GetNamespace() + ":" + made.Name, "aud": l.asked,
		"exp": time.Now().Add(time.Minute).Unix(), "iat": time.Now().Unix(),
	})
	if err != nil {
		return true, nil, err
	}
	text := base64.RawURLEncoding.EncodeToString
	signed := text([]byte(`{"alg":"ES256","typ":"JWT"}`)) + "." + text(claims)
	digest := sha256.Sum256([]byte(signed))
	r, s, err := ecdsa.Sign(rand.Reader, l.key, digest[:crypto.SHA256.Size()])
	if err != nil {
		return true, nil, err
	}
	request.Status.Token = signed + "." +
		text(append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...))
	return true, request, nil
}

// provider is that of a store or a generator, with more and another way to log in.
func (l *landed) provider(more, auth string) string {
	return fmt.Sprintf(`{"server":%q,"path":"secret","version":"v2"%s,"auth":%s}`, l.vault.URL(), more, auth)
}

const (
	fromSecret = `,"caProvider":{"type":"Secret","namespace":"external-secrets",` +
		`"name":"vault","key":"ca.crt"}`
	ownSecret = `,"caProvider":{"type":"Secret","name":"vault","key":"ca.crt"}`
	withToken = `{"tokenSecretRef":{"namespace":"external-secrets","name":"vault","key":"token"}}`
)

func jwt(role, account string) string {
	return fmt.Sprintf(`{"jwt":{"role":%q,"kubernetesServiceAccountToken":{"serviceAccountRef":%s}}}`,
		role, account)
}

// refusedFor runs a pass and checks that the lab's log contains no secret.
func (l *landed) refusedFor(t *testing.T) string {
	t.Helper()
	err := l.e.Look(t.Context())
	if err == nil {
		return ""
	}
	for _, secret := range []string{"open-sesame", "wrong-token", "eyJ", l.vault.RootToken()} {
		if strings.Contains(err.Error(), secret) {
			t.Errorf("the log says %s: %v", secret, err)
		}
	}
	return err.Error()
}

func TestExternalSecretsAndARealVault(t *testing.T) {
	l := newLanded(t)
	t.Run("stores", l.stores)
	t.Run("namespaced", l.namespaced)
	t.Run("generators", l.generators)
	t.Run("targets", l.targets)
	t.Run("sealed", l.sealed)
}

func (l *landed) stores(t *testing.T) {
	bundle := string(l.stage.Secret(t, "app", "vault").Data["ca.crt"])
	for name, c := range map[string]struct {
		more, auth, message, log string
	}{
		"secret": {fromSecret, withToken, "store validated", ""},
		"config-map": {strings.Replace(strings.Replace(fromSecret, "Secret", "ConfigMap", 1), `"vault"`,
			`"ca"`, 1), withToken, "store validated", ""},
		"bundle": {`,"caBundle":"` + base64.StdEncoding.EncodeToString([]byte(bundle)) + `"`, withToken,
			"store validated", ""},
		"own-token": {fromSecret, jwt("reader", `{"name":"app","namespace":"app"}`), "store validated", ""},
		// The owner of the token is not known yet, so the operator does not check it.
		"referent": {fromSecret, jwt("no-role", `{"name":"app"}`), "store validated", ""},

		"no-authority": {"", withToken, "unable to validate store",
			"certificate signed by unknown authority"},
		"no-namespace": {ownSecret, withToken, "unable to create client",
			"missing namespace on caProvider secret"},
		"no-certificate": {strings.Replace(fromSecret, "ca.crt", "nonsense", 1), withToken,
			"unable to create client", "cannot set Vault CA certificate"},
		"no-secret": {strings.Replace(fromSecret, `"vault"`, `"absent"`, 1), withToken,
			"unable to create client",
			`cannot get Kubernetes secret "absent" from namespace "external-secrets"`},
		"no-key": {fromSecret, strings.Replace(withToken, `"token"}`, `"absent"}`, 1),
			"unable to create client", `cannot find secret data for key: "absent"`},
		"bad-token": {fromSecret, strings.Replace(withToken, `"token"}`, `"wrong"}`, 1),
			"unable to validate store",
			"invalid vault credentials: vault: GET auth/token/lookup-self: 2 errors occurred:\n" +
				"\t* permission denied"},
		"no-role": {fromSecret, jwt("no-role", `{"name":"app","namespace":"app"}`),
			"unable to create client", `role "no-role" could not be found`},
		"no-way": {fromSecret, "{}", "unable to create client", "no valid auth method specified"},
		"another-way": {fromSecret, `{"kubernetes":{"role":"r","mountPath":"kubernetes"}}`,
			"unable to create client", "the lab's External Secrets logs in"},
	} {
		t.Run(name, func(t *testing.T) {
			l.stage.Create(t, stores(),
				fmt.Sprintf(`{"apiVersion":"external-secrets.io/v1","kind":"ClusterSecretStore",`+
					`"metadata":{"name":%q,"uid":%q,"generation":1},"spec":{"provider":{"vault":%s}}}`,
					name, name, l.provider(c.more, c.auth)))
			log := l.refusedFor(t)
			if !strings.Contains(log, c.log) || c.log == "" && log != "" {
				t.Errorf("the log says %q, want %q", log, c.log)
			}
			got := l.stage.Get(t, stores(), "", name)
			if is := cluster.MessageOf(got.Object, "Ready"); is != c.message {
				t.Errorf("the condition says %q", is)
			}
			if want := map[bool]string{true: "Valid",
				false: "InvalidProviderConfig"}[c.log == ""]; cluster.OfCondition(got.Object, "Ready",
				"reason") != want {
				t.Errorf("status: %v", got.Object["status"])
			}
			if c.log != "" {
				if err := l.stage.World.Untyped.Resource(stores()).Delete(t.Context(), name,
					metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// external is an ExternalSecret in the namespace app.
func (l *landed) external(t *testing.T, name, spec string) (condition, log string) {
	t.Helper()
	l.stage.Create(t, externals(),
		fmt.Sprintf(`{"apiVersion":"external-secrets.io/v1","kind":"ExternalSecret",`+
			`"metadata":{"namespace":"app","name":%q,"uid":%q,"generation":1},"spec":%s}`, name, name, spec))
	log = l.refusedFor(t)
	condition = cluster.MessageOf(l.stage.Get(t, externals(), "app", name).Object, "Ready")
	if condition != "secret synced" {
		if err := l.stage.World.Untyped.Resource(externals()).Namespace("app").Delete(t.Context(), name,
			metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return condition, log
}

// tokens counts those that Vault knows.
func (l *landed) tokens(t *testing.T) int {
	t.Helper()
	var known struct{ Data struct{ Keys []string } }
	if err := l.vault.Call(t.Context(), "LIST", "auth/token/accessors", nil, &known); err != nil {
		t.Fatal(err)
	}
	return len(known.Data.Keys)
}

const one = `,"data":[{"secretKey":"p","remoteRef":{"key":"KEY","property":"password"}}]}`

func reads(store, key string) string {
	return `{"secretStoreRef":` + store + strings.Replace(one, "KEY", key, 1)
}

const notRead = "could not get secret data from provider"

func (l *landed) namespaced(t *testing.T) {
	l.stage.Create(t, secretStores(),
		`{"apiVersion":"external-secrets.io/v1","kind":"SecretStore","metadata":{"namespace":"app",`+
			`"name":"mine","uid":"mine","generation":1},"spec":{"provider":{"vault":`+
			l.provider(ownSecret, jwt("reader", `{"name":"app","audiences":["more"]}`))+`}}}`)
	before := l.tokens(t)
	for _, c := range []struct{ name, spec, condition, log string }{
		{"by-cluster", reads(`{"kind":"ClusterSecretStore","name":"secret"}`, "app"), "secret synced", ""},
		{"whole-path", reads(`{"kind":"ClusterSecretStore","name":"secret"}`, "secret/data/app"),
			"secret synced", ""},
		{"by-own", reads(`{"kind":"SecretStore","name":"mine"}`, "app"), "secret synced", ""},
		{"extract", `{"secretStoreRef":{"kind":"ClusterSecretStore","name":"secret"},` +
			`"dataFrom":[{"extract":{"key":"app"}}]}`, "secret synced", ""},
		// The kind defaults to SecretStore.
		{"no-kind", reads(`{"name":"secret"}`, "app"), notRead, `could not get SecretStore "secret"`},
		{"referent", reads(`{"kind":"ClusterSecretStore","name":"referent"}`, "app"), notRead,
			`role "no-role" could not be found`},
		{"no-secret", reads(`{"kind":"ClusterSecretStore","name":"secret"}`, "absent"), notRead,
			"cannot read secret data from Vault: secret does not exist"},
		{"no-property", strings.Replace(reads(`{"kind":"ClusterSecretStore","name":"secret"}`, "app"),
			`"property":"password"`, `"property":"user"`, 1), notRead,
			`cannot find secret data for key: "user"`},
	} {
		if condition, log := l.external(t, c.name, c.spec); condition != c.condition ||
			!strings.Contains(log, c.log) || c.log == "" && log != "" {
			t.Errorf("%s: %q, %q", c.name, condition, log)
		}
		// A token is always for Vault, too, and is given back.
		if c.name == "by-own" && !slices.Equal(l.asked, []string{"more", "vault"}) {
			t.Errorf("a token for %q", l.asked)
		}
	}
	if after := l.tokens(t); after != before {
		t.Errorf("of %d tokens there are %d", before, after)
	}
	for _, name := range []string{"by-cluster", "whole-path", "by-own"} {
		if got := l.stage.Secret(t, "app", name); string(got.Data["p"]) != "open-sesame" ||
			got.Labels[managed] != "true" || metav1.GetControllerOf(got).Name != name {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if got := l.stage.Secret(t, "app", "extract"); string(got.Data["password"]) != "open-sesame" {
		t.Errorf("extract: %q", got.Data)
	}
	// The operator does not query a store that is not ready.
	l.stage.Create(t, stores(), `{"apiVersion":"external-secrets.io/v1","kind":"ClusterSecretStore",`+
		`"metadata":{"name":"unready","uid":"unready","generation":1},"spec":{"provider":{"vault":`+
		l.provider("", withToken)+`}}}`)
	if condition, log := l.external(t, "unready", reads(`{"kind":"ClusterSecretStore","name":"unready"}`,
		"app")); condition != notRead || !strings.Contains(log, `ClusterSecretStore "unready" is not ready`) {
		t.Errorf("%q, %q", condition, log)
	}
	if err := l.stage.World.Untyped.Resource(stores()).Delete(t.Context(), "unready",
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (l *landed) generators(t *testing.T) {
	for _, c := range []struct{ name, more, auth, path, condition, log string }{
		{"good", ownSecret, jwt("reader", `{"name":"app"}`), "secret/data/app", "secret synced", ""},
		{"more-audiences", ownSecret, jwt("reader", `{"name":"app","audiences":["somebody"]}`),
			"secret/data/app", "secret synced", ""},
		{"other-audience", ownSecret, strings.Replace(jwt("reader", `{"name":"app"}`),
			`"kubernetesServiceAccountToken":{`,
			`"kubernetesServiceAccountToken":{"audiences":["somebody"],`, 1),
			"secret/data/app", notRead,
			"unable to setup Vault client: vault: PUT auth/jwt/login: error validating token: invalid " +
				"audience"},
		{"other-role", ownSecret, jwt("no-role", `{"name":"app"}`), "secret/data/app", notRead,
			`role "no-role" could not be found`},
		{"other-mount", ownSecret, strings.Replace(jwt("reader", `{"name":"app"}`), `{"jwt":{`,
			`{"jwt":{"path":"jwt-other",`, 1), "secret/data/app", notRead,
			"PUT auth/jwt-other/login: permission denied"},
		{"no-policy", ownSecret, jwt("nobody", `{"name":"app"}`), "secret/data/app", notRead,
			"permission denied"},
		{"no-source", ownSecret, `{"jwt":{"role":"reader"}}`, "secret/data/app", notRead,
			"was supplied as token source"},
		{"other-namespace", fromSecret, jwt("reader", `{"name":"app"}`), "secret/data/app", notRead,
			"namespace should either be empty or match"},
		{"no-authority", "", jwt("reader", `{"name":"app"}`), "secret/data/app", notRead,
			"certificate signed by unknown authority"},
	} {
		l.stage.Create(t, generators(),
			fmt.Sprintf(`{"apiVersion":"generators.external-secrets.io/v1alpha1",`+
				`"kind":"VaultDynamicSecret","metadata":{"namespace":"app",`+
				`"name":%q},"spec":{"path":%q,"provider":%s}}`,
				c.name, c.path, l.provider(c.more, c.auth)))
		condition, log := l.external(t, "generated-"+c.name,
			fmt.Sprintf(`{"dataFrom":[{"sourceRef":{"generatorRef":{"kind":"VaultDynamicSecret",`+
				`"name":%q}}}]}`, c.name))
		if condition != c.condition || !strings.Contains(log, c.log) || c.log == "" && log != "" {
			t.Errorf("%s: %q, %q", c.name, condition, log)
		}
	}
	if got := l.stage.Secret(t, "app",
		"generated-good"); string(got.Data["data"]) != `{"password":"open-sesame"}` {
		t.Errorf("%q", got.Data)
	}
}

// targets are Secrets that are there already.
func (l *landed) targets(t *testing.T) {
	controlled := func(name, kind, by string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "app", Name: name,
			OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "v1", Kind: kind, Name: by, UID: "2", Controller: new(true)},
			}}}
	}
	free := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "app", Name: "free",
		Labels: map[string]string{"mine": "true"}}, Data: map[string][]byte{"old": nil}}
	for _, c := range []struct {
		secret    *corev1.Secret
		condition string
	}{
		{controlled("others", "ExternalSecret", "another"), "target is owned by another ExternalSecret"},
		{controlled("taken", "PostgresCluster", "db"), "failed to take ownership of target secret"},
		{free, "secret synced"},
	} {
		l.stage.Add(t, c.secret)
		if condition, log := l.external(t, c.secret.Name,
			reads(`{"kind":"ClusterSecretStore","name":"secret"}`, "app")); condition != c.condition {
			t.Errorf("%s: %q, %q", c.secret.Name, condition, log)
		}
	}
	if got := l.stage.Secret(t, "app", "free"); len(got.Data) != 1 || got.Labels["mine"] != "true" ||
		metav1.GetControllerOf(got) == nil {
		t.Errorf("%+v", got)
	}
	if got := l.stage.Secret(t, "app", "taken"); got.Data != nil {
		t.Errorf("%+v", got)
	}
	// The operator creates a deleted Secret again and checks a changed store again.
	if err := l.stage.World.Typed.CoreV1().Secrets("app").Delete(t.Context(), "free",
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	l.stage.Look(t, l.e)
	l.stage.Secret(t, "app", "free")
	store := l.stage.Get(t, stores(), "", "secret")
	store.SetGeneration(2)
	cluster.Nested(store.Object, "spec", "provider", "vault")["server"] = "https://127.0.0.1:1"
	if _, err := l.stage.World.Untyped.Resource(stores()).Update(t.Context(), store,
		metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if log := l.refusedFor(t); !strings.Contains(log, "connection refused") ||
		cluster.ConditionOf(l.stage.Get(t, stores(), "", "secret").Object, "Ready") != "False" {
		t.Errorf("a store that has changed: %q", log)
	}
}

func (l *landed) sealed(t *testing.T) {
	l.call(t, "sys/seal", nil)
	for name, auth := range map[string]string{"sealed-token": withToken,
		"sealed-jwt": jwt("reader", `{"name":"app","namespace":"app"}`)} {
		l.stage.Create(t, stores(),
			fmt.Sprintf(`{"apiVersion":"external-secrets.io/v1","kind":"ClusterSecretStore",`+
				`"metadata":{"name":%q,"uid":%q,"generation":1},"spec":{"provider":{"vault":%s}}}`, name,
				name, l.provider(fromSecret, auth)))
	}
	if log := l.refusedFor(t); strings.Count(log, "Vault is sealed") != 2 {
		t.Errorf("the log says %q", log)
	}
	for name, want := range map[string]string{"sealed-token": "unable to validate store",
		"sealed-jwt": "unable to create client"} {
		if is := cluster.MessageOf(l.stage.Get(t, stores(), "", name).Object, "Ready"); is != want {
			t.Errorf("%s: %q", name, is)
		}
	}
}
