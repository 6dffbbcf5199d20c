package operators

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/ephemeral-castle/castle/lab/internal/operators/cluster"
)

// vaultScope resolves the references of a provider. Only a ClusterSecretStore may reach into
// namespaces other than that of the ExternalSecret, the generator or the SecretStore.
type vaultScope struct {
	k         kubernetes.Interface
	cluster   bool
	namespace string // empty while a ClusterSecretStore is judged
}

var errOtherNamespace = errors.New("namespace should either be empty or match the namespace of the " +
	"SecretStore for a namespaced SecretStore")

// open logs in with the first login method that the provider names.
func (s vaultScope) open(ctx context.Context, provider map[string]any) (*vaultClient, error) {
	roots, err := s.authorities(ctx, provider)
	if err != nil {
		return nil, err
	}
	v := &vaultClient{
		address: strings.TrimSuffix(cluster.Text(provider, "server"), "/"),
		http: &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
			DisableKeepAlives: true, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12,
				RootCAs: roots},
		}},
	}
	auth := cluster.Nested(provider, "auth")
	switch jwt := cluster.Nested(auth, "jwt"); {
	case auth == nil || s.namespace == "" && s.unknown(provider):
	case cluster.Nested(auth, "tokenSecretRef") != nil:
		v.token, err = s.secret(ctx, cluster.Nested(auth, "tokenSecretRef"))
	case jwt != nil:
		err = s.jwt(ctx, v, jwt)
	case len(auth) == 0:
		err = errors.New("cannot initialize Vault client: no valid auth method specified")
	default:
		err = errors.New("the lab's External Secrets logs in at Vault with tokenSecretRef and jwt only")
	}
	return v, err
}

// unknown reports whether a ClusterSecretStore takes its credentials from the namespace of each
// ExternalSecret.
func (s vaultScope) unknown(provider map[string]any) bool {
	auth := cluster.Nested(provider, "auth")
	for _, path := range [][]string{{"tokenSecretRef"}, {"jwt", "secretRef"},
		{"jwt", "kubernetesServiceAccountToken", "serviceAccountRef"}} {
		if ref := cluster.Nested(auth, path...); s.cluster && ref != nil &&
			cluster.Text(ref, "namespace") == "" {
			return true
		}
	}
	return false
}

// authorities returns the authorities that may sign Vault's certificate. If the provider names
// none, a Pod trusts the public ones, and none of them signed for the lab's Vault.
func (s vaultScope) authorities(ctx context.Context, provider map[string]any) (*x509.CertPool, error) {
	roots := x509.NewCertPool()
	bundle, source := cluster.Text(provider, "caBundle"), cluster.Nested(provider, "caProvider")
	switch {
	case bundle != "":
		decoded, err := base64.StdEncoding.DecodeString(bundle)
		if err != nil {
			return nil, fmt.Errorf("failed to decode ca bundle: %w", err)
		}
		bundle = string(decoded)
	case source == nil:
		return roots, nil
	default:
		var err error
		if bundle, err = s.authority(ctx, source); err != nil {
			return nil, err
		}
	}
	if !roots.AppendCertsFromPEM([]byte(bundle)) {
		return nil, errors.New("cannot set Vault CA certificate: failed to parse certificates from CertPool")
	}
	return roots, nil
}

// authority reads the certificates of a caProvider.
func (s vaultScope) authority(ctx context.Context, source map[string]any) (string, error) {
	named := cluster.Text(source, "namespace")
	if s.cluster && named == "" {
		return "", errors.New("missing namespace on caProvider secret")
	}
	if !s.cluster && named != "" && named != s.namespace {
		return "", errOtherNamespace
	}
	switch kind := cluster.Text(source, "type"); kind {
	case "Secret":
		found, err := s.secret(ctx, source)
		if err != nil {
			return "", fmt.Errorf("failed to get cert from secret: %w", err)
		}
		return found, nil
	case "ConfigMap":
		config, err := s.k.CoreV1().ConfigMaps(s.of(source)).Get(ctx, cluster.Text(source, "name"),
			metav1.GetOptions{})
		if err != nil {
			return "", fmt.Errorf("failed to get cert from configmap: %w", err)
		}
		found, there := config.Data[cluster.Text(source, "key")]
		if !there {
			return "", fmt.Errorf("failed to get cert from configmap: %s has no %s", config.Name,
				cluster.Text(source, "key"))
		}
		return found, nil
	default:
		return "", fmt.Errorf("unsupported CA provider type: %s", kind)
	}
}

// of returns the namespace of a reference. It ignores the namespace in the reference unless the
// provider may follow it.
func (s vaultScope) of(ref map[string]any) string {
	if s.cluster {
		return cmp.Or(cluster.Text(ref, "namespace"), s.namespace)
	}
	return s.namespace
}

func (s vaultScope) secret(ctx context.Context, ref map[string]any) (string, error) {
	secret, err := s.k.CoreV1().Secrets(s.of(ref)).Get(ctx, cluster.Text(ref, "name"), metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("cannot get Kubernetes secret %q from namespace %q: %w",
			cluster.Text(ref, "name"),
			s.of(ref), err)
	}
	value, there := secret.Data[cluster.Text(ref, "key")]
	if !there {
		return "", fmt.Errorf("cannot find secret data for key: %q", cluster.Text(ref, "key"))
	}
	return string(value), nil
}

// jwt exchanges a token of Kubernetes' for one of Vault's.
func (s vaultScope) jwt(ctx context.Context, v *vaultClient, auth map[string]any) error {
	var token string
	var err error
	switch account := cluster.Nested(auth, "kubernetesServiceAccountToken"); {
	case cluster.Nested(auth, "secretRef") != nil:
		token, err = s.secret(ctx, cluster.Nested(auth, "secretRef"))
	case account != nil:
		token, err = s.token(ctx, account)
	default:
		err = errNoTokenSource
	}
	if err != nil {
		return err
	}
	var login struct {
		Auth struct {
			ClientToken string `json:"client_token"`
		}
	}
	path := "auth/" + cmp.Or(cluster.Text(auth, "path"), "jwt") + "/login"
	err = v.call(ctx, http.MethodPut, path,
		map[string]string{"role": strings.TrimSpace(cluster.Text(auth, "role")),
			"jwt": token}, &login)
	v.token, v.lent = login.Auth.ClientToken, err == nil
	return err
}

var errNoTokenSource = errors.New("neither `secretRef` nor `kubernetesServiceAccountToken` was supplied " +
	"as token source for jwt authentication")

// token requests a ServiceAccount's token from the API server, for ten minutes. Its audiences
// always include Vault, unless the older list of audiences overrides that.
func (s vaultScope) token(ctx context.Context, account map[string]any) (string, error) {
	ref := cluster.Nested(account, "serviceAccountRef")
	older, there := account["audiences"].([]any)
	if !there {
		older = []any{"vault"}
	}
	own, _ := ref["audiences"].([]any)
	var audiences []string
	for _, a := range append(own[:len(own):len(own)], older...) {
		audiences = append(audiences, fmt.Sprint(a))
	}
	seconds := cmp.Or(cluster.Whole(account, "expirationSeconds"), 600)
	made, err := s.k.CoreV1().ServiceAccounts(s.of(ref)).CreateToken(ctx, cluster.Text(ref, "name"),
		&authenticationv1.TokenRequest{
			Spec: authenticationv1.TokenRequestSpec{Audiences: audiences, ExpirationSeconds: &seconds},
		}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("cannot request Kubernetes service account token for service account %q: %w",
			cluster.Text(ref, "name"), err)
	}
	return made.Status.Token, nil
}
