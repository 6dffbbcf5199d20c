package infisical

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

const (
	attempts  = 6 // the first and five more after a 429
	longest   = time.Minute
	userAgent = "terraform"
	rawPath   = "/api/v3/secrets/raw"
	advice    = "Please make sure your secret path, workspace and environment name are all correct"
)

var errNotFound = errors.New("secret not found")

type client struct {
	host, token string
	http        *http.Client
}

func newClient(host string) *client {
	return &client{host: strings.TrimSuffix(host, "/"), http: &http.Client{}}
}

type pair struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

type secret struct {
	ID                       string `json:"id"`
	Workspace                string `json:"workspace"`
	Type                     string `json:"type"`
	Environment              string `json:"environment"`
	SecretPath               string `json:"secretPath"`
	SecretKey                string `json:"secretKey"`
	SecretValue              string `json:"secretValue"`
	SecretComment            string `json:"secretComment"`
	UpdatedAt                string `json:"updatedAt"`
	SecretReminderNote       string `json:"secretReminderNote"`
	SecretReminderRepeatDays int64  `json:"secretReminderRepeatDays"`
	SecretMetadata           []pair `json:"secretMetadata"`
	Tags                     []struct {
		ID string `json:"id"`
	} `json:"tags"`
}

// request is the body of POST, PATCH and DELETE.
type request struct {
	WorkspaceID              string   `json:"workspaceId"`
	Type                     string   `json:"type"`
	Environment              string   `json:"environment"`
	SecretPath               string   `json:"secretPath"`
	NewSecretName            string   `json:"newSecretName,omitempty"`
	SecretValue              *string  `json:"secretValue,omitempty"`
	SecretReminderNote       string   `json:"secretReminderNote"`
	SecretReminderRepeatDays int64    `json:"secretReminderRepeatDays"`
	SecretMetadata           []pair   `json:"secretMetadata,omitempty"`
	TagIDs                   []string `json:"tagIds"`
}

// where is a secret's folder.
type where struct{ workspace, environment, path string }

func (w where) query() url.Values {
	return url.Values{"workspaceId": {w.workspace}, "environment": {w.environment}, "secretPath": {w.path}}
}

func (c *client) login(ctx context.Context, id, secret, organization string) error {
	if id == "" || secret == "" {
		return errors.New("you must configure an authentication method such as service tokens or " +
			"Universal Auth before making calls")
	}
	body := map[string]string{"clientId": id, "clientSecret": secret}
	if organization != "" {
		body["organizationSlug"] = organization
	}
	var answer struct {
		AccessToken string `json:"accessToken"`
	}
	err := c.call(ctx, "CallUniversalMachineIdentityAuth", http.MethodPost,
		"/api/v1/auth/universal-auth/login", body, &answer)
	if err != nil {
		return fmt.Errorf("unable to authenticate with machine identity [err=%w]", err)
	}
	c.token = answer.AccessToken
	return nil
}

func (c *client) list(ctx context.Context, w where) ([]secret, error) {
	query := w.query()
	query.Set("expandSecretReferences", "true")
	var answer struct {
		Secrets []secret `json:"secrets"`
	}
	err := c.call(ctx, "CallGetSecretsRawV3", http.MethodGet, rawPath+"?"+query.Encode(), nil, &answer)
	return answer.Secrets, err
}

func (c *client) byName(ctx context.Context, w where, name string) (secret, error) {
	query := w.query()
	query.Set("type", "shared")
	query.Set("viewSecretValue", "true")
	return c.one(ctx, "CallGetSingleRawSecretByNameV3", http.MethodGet, url.PathEscape(name)+"?"+
		query.Encode(), nil)
}

func (c *client) byID(ctx context.Context, id string) (secret, error) {
	return c.one(ctx, "CallGetSingleSecretByIDV3", http.MethodGet, "id/"+url.PathEscape(id), nil)
}

func (c *client) create(ctx context.Context, name string, r request) (secret, error) {
	return c.one(ctx, "CallCreateRawSecretsV3", http.MethodPost, url.PathEscape(name), r)
}

func (c *client) update(ctx context.Context, name string, r request) (secret, error) {
	return c.one(ctx, "CallUpdateRawSecretV3", http.MethodPatch, url.PathEscape(name), r)
}

func (c *client) delete(ctx context.Context, name string, r request) error {
	_, err := c.one(ctx, "CallDeleteRawSecretV3", http.MethodDelete, url.PathEscape(name), r)
	return err
}

func (c *client) one(ctx context.Context, operation, method, path string, body any) (secret, error) {
	var answer struct {
		Secret secret `json:"secret"`
	}
	err := c.call(ctx, operation, method, rawPath+"/"+path, body, &answer)
	var f *failure
	if method == http.MethodGet && errors.As(err, &f) && f.status == http.StatusNotFound {
		err = errNotFound
	}
	return answer.Secret, err
}

// failure is an unsuccessful answer.
type failure struct {
	operation, method, url string
	status                 int
	advised                bool   // the real provider gives its advice for some calls only
	Message                string `json:"message"`
	RequestID              string `json:"reqId"`
}

func (f *failure) Error() string {
	text := fmt.Sprintf("%s Unsuccessful response [%s %s] [status-code=%d] [request-id=%s]", f.operation,
		f.method, f.url, f.status, f.RequestID)
	if f.Message != "" {
		text += fmt.Sprintf(" [message=%q]", f.Message)
	}
	if f.advised {
		text += fmt.Sprintf(" [additional-context=%q]", advice)
	}
	return text
}

func (c *client) call(ctx context.Context, operation, method, path string, body, answer any) error {
	for attempt := 1; ; attempt++ {
		again, err := c.attempt(ctx, operation, method, path, body, answer)
		if again == 0 || attempt == attempts {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(min(again, longest)):
		}
	}
}

// attempt makes one request; again is the delay before the next one, if a retry is due.
func (c *client) attempt(ctx context.Context, operation, method, path string, body,
	answer any) (again time.Duration, err error) {
	sent, err := json.Marshal(body)
	if err != nil {
		return 0, err
	}
	r, err := http.NewRequestWithContext(ctx, method, c.host+path, bytes.NewReader(sent))
	if err != nil {
		return 0, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", userAgent)
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	response, err := c.http.Do(r)
	if err != nil {
		return 0, fmt.Errorf("%s: Unable to complete api request [err=%w]", operation, err)
	}
	defer response.Body.Close()
	received, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, fmt.Errorf("%s: Unable to complete api request [err=%w]", operation, err)
	}
	if response.StatusCode < http.StatusBadRequest {
		return 0, json.Unmarshal(received, answer)
	}
	f := &failure{operation: operation, method: method, url: r.URL.String(), status: response.StatusCode}
	f.advised = strings.HasPrefix(path, rawPath) && !strings.HasPrefix(path, rawPath+"/id/")
	if err := json.Unmarshal(received, f); err != nil {
		f.Message = "" // a proxy's page, not the API's answer
	}
	if response.StatusCode == http.StatusTooManyRequests {
		again = time.Second
		if seconds, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil {
			again = max(time.Duration(seconds)*time.Second, time.Millisecond)
		}
	}
	return again, f
}
