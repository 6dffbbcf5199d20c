package operators

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// infisicalClient is the little that External Secrets wants of Infisical.
type infisicalClient struct {
	http *http.Client
	host string // as a store's hostAPI says it, with or without /api
}

func (i infisicalClient) url(path string) string {
	return strings.TrimSuffix(strings.TrimSuffix(i.host, "/"), "/api") + "/api" + path
}

// login exchanges a machine identity for a token.
func (i infisicalClient) login(ctx context.Context, id, secret string) (string, error) {
	body, err := json.Marshal(map[string]string{"clientId": id, "clientSecret": secret})
	if err != nil {
		return "", err
	}
	var answer struct {
		AccessToken string `json:"accessToken"`
	}
	if err := i.call(ctx, http.MethodPost, "/v1/auth/universal-auth/login", "", body, &answer); err != nil {
		return "", err
	}
	return answer.AccessToken, nil
}

// scope is where a store looks secrets up.
type scope struct{ project, environment, folder string }

// read fetches one secret.
func (i infisicalClient) read(ctx context.Context, token string, s scope, name string) (string, error) {
	query := url.Values{
		"workspaceSlug": {s.project}, "environment": {s.environment}, "secretPath": {s.folder},
		"include_imports": {"true"}, "expandSecretReferences": {"true"},
	}
	var answer struct {
		Secret struct {
			Value string `json:"secretValue"`
		} `json:"secret"`
	}
	err := i.call(ctx, http.MethodGet, "/v3/secrets/raw/"+url.PathEscape(name)+"?"+query.Encode(), token,
		nil, &answer)
	return answer.Secret.Value, err
}

// call reports the answer of the server, never the request.
func (i infisicalClient) call(ctx context.Context, method, path, token string, body []byte,
	answer any) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, i.url(path), bytes.NewReader(body))
	if err != nil {
		return err
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := i.http.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close() //nolint:errcheck // read to its end
	content, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		var failure struct {
			Message string `json:"message"`
		}
		if json.Unmarshal(content, &failure) != nil || failure.Message == "" {
			failure.Message = http.StatusText(response.StatusCode)
		}
		return fmt.Errorf("%s: %d: %s", request.URL.Host, response.StatusCode, failure.Message)
	}
	return json.Unmarshal(content, answer)
}
