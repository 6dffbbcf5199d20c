package operators

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// vaultClient is the little that External Secrets wants of Vault.
type vaultClient struct {
	http    *http.Client
	address string
	token   string
}

// openVault logs in as the provider of a store or a generator says: with a token,
// or with that of a ServiceAccount. What it names without a namespace is in the given one.
func openVault(ctx context.Context, k kubernetes.Interface, provider map[string]any, namespace string) (*vaultClient, error) {
	from := func(path ...string) (string, error) {
		in := namespace
		if named := text(provider, append(path, "namespace")...); named != "" {
			in = named
		}
		secret, err := k.CoreV1().Secrets(in).Get(ctx, text(provider, append(path, "name")...), metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		value := secret.Data[text(provider, append(path, "key")...)]
		if len(value) == 0 {
			return "", fmt.Errorf("secret %s/%s has no %s", in, secret.Name, text(provider, append(path, "key")...))
		}
		return string(value), nil
	}
	authority, err := from("caProvider")
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(authority))
	v := &vaultClient{
		address: strings.TrimSuffix(text(provider, "server"), "/"),
		http: &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
			DisableKeepAlives: true, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots},
		}},
	}
	role := text(provider, "auth", "jwt", "role")
	if role == "" {
		v.token, err = from("auth", "tokenSecretRef")
		return v, err
	}
	account := nested(provider, "auth", "jwt", "kubernetesServiceAccountToken", "serviceAccountRef")
	audiences := []string{}
	if all, ok := account["audiences"].([]any); ok {
		for _, a := range all {
			audiences = append(audiences, fmt.Sprint(a))
		}
	}
	made, err := k.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, text(account, "name"), &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{Audiences: audiences},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	var login struct {
		Auth struct {
			ClientToken string `json:"client_token"`
		}
	}
	err = v.call(ctx, http.MethodPost, "auth/"+text(provider, "auth", "jwt", "path")+"/login", map[string]string{"role": role, "jwt": made.Status.Token}, &login)
	v.token = login.Auth.ClientToken
	return v, err
}

// lookup asks whether Vault knows the token.
func (v *vaultClient) lookup(ctx context.Context) error {
	return v.call(ctx, http.MethodGet, "auth/token/lookup-self", nil, nil)
}

// read returns the data at a path: for a KV engine of version 2, that of a secret.
func (v *vaultClient) read(ctx context.Context, path string) (map[string]any, error) {
	var answer struct{ Data map[string]any }
	err := v.call(ctx, http.MethodGet, path, nil, &answer)
	return answer.Data, err
}

// call reports what Vault said, never what it was sent.
func (v *vaultClient) call(ctx context.Context, method, path string, body, answer any) error {
	var sent io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return err
		}
		sent = bytes.NewReader(b)
	}
	request, err := http.NewRequestWithContext(ctx, method, v.address+"/v1/"+path, sent)
	if err != nil {
		return err
	}
	request.Header.Set("X-Vault-Token", v.token)
	response, err := v.http.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close() //nolint:errcheck // it was only read
	content, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err != nil {
		return err
	}
	if response.StatusCode >= http.StatusBadRequest {
		var said struct{ Errors []string }
		if json.Unmarshal(content, &said) != nil || len(said.Errors) == 0 {
			said.Errors = []string{response.Status}
		}
		return fmt.Errorf("vault: %s: %w", path, errors.New(strings.Join(said.Errors, "; ")))
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(content, answer)
}

// nested is an object in an object; nil if there is none.
func nested(object map[string]any, path ...string) map[string]any {
	for _, name := range path {
		object, _ = object[name].(map[string]any)
	}
	return object
}
