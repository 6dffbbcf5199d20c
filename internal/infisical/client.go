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
	"strings"
	"time"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/process"
)

// attempt bounds one request.
const attempt = 15 * time.Second

// client speaks with Infisical as the Terraform provider would: with the machine
// identity, or the token, of the environment.
type client struct {
	host       string
	id, secret string
	token      string
	http       *http.Client
}

func newClient(host string, environ []string) *client {
	return &client{
		host:   strings.TrimSuffix(host, "/"),
		id:     process.Getenv(environ, "INFISICAL_UNIVERSAL_AUTH_CLIENT_ID"),
		secret: process.Getenv(environ, "INFISICAL_UNIVERSAL_AUTH_CLIENT_SECRET"),
		http:   &http.Client{Timeout: attempt},
	}
}

// login gets a token, once.
func (c *client) login(ctx context.Context) error {
	switch {
	case c.token != "":
		return nil
	case c.id == "" || c.secret == "":
		return gate.Permanent(errors.New("set INFISICAL_UNIVERSAL_AUTH_CLIENT_ID and INFISICAL_UNIVERSAL_AUTH_CLIENT_SECRET: without them nobody can ask"))
	}
	var answer struct {
		AccessToken string `json:"accessToken"`
	}
	body := map[string]string{"clientId": c.id, "clientSecret": c.secret}
	if err := c.call(ctx, http.MethodPost, "/api/v1/auth/universal-auth/login", body, &answer); err != nil {
		if f := (*failure)(nil); errors.As(err, &f) {
			f.login = true
		}
		return fmt.Errorf("log in: %w", err)
	}
	if answer.AccessToken == "" {
		return gate.Permanent(errors.New("log in: the answer holds no token: that is no Infisical"))
	}
	c.token = answer.AccessToken
	return nil
}

// get asks for what lies below the secrets' path; what it says is not looked at.
func (c *client) get(ctx context.Context, path string) error {
	var answer struct {
		Secret  *struct{}   `json:"secret"`
		Secrets *[]struct{} `json:"secrets"`
	}
	if err := c.call(ctx, http.MethodGet, "/api/v3/secrets/raw"+path, nil, &answer); err != nil {
		return err
	}
	if answer.Secret == nil && answer.Secrets == nil {
		return gate.Permanent(errors.New("the answer holds no secret: that is no Infisical"))
	}
	return nil
}

// failure is an answer that is no success. Its message is the server's.
type failure struct {
	status  int
	login   bool
	Message string `json:"message"`
}

func (f *failure) Error() string {
	if f.Message == "" {
		return fmt.Sprintf("%d %s", f.status, http.StatusText(f.status))
	}
	return fmt.Sprintf("%s (%d)", strings.TrimSuffix(f.Message, "."), f.status)
}

func (c *client) call(ctx context.Context, method, path string, body, answer any) error {
	var sent io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return err
		}
		sent = bytes.NewReader(data)
	}
	request, err := http.NewRequestWithContext(ctx, method, c.host+path, sent)
	if err != nil {
		return gate.Permanent(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "castle")
	if c.token != "" {
		request.Header.Set("Authorization", "Bearer "+c.token)
	}
	response, err := c.http.Do(request)
	if err != nil {
		var long *url.Error
		if errors.As(err, &long) {
			err = long.Err // the rest repeats the address
		}
		return err
	}
	defer response.Body.Close() //nolint:errcheck // it was only read
	received, err := io.ReadAll(io.LimitReader(response.Body, 8<<20))
	if err != nil {
		return err
	}
	if response.StatusCode >= http.StatusBadRequest {
		f := &failure{status: response.StatusCode}
		if err := json.Unmarshal(received, f); err != nil {
			f.Message = "" // a proxy's page, not the API's words
		}
		return f
	}
	if err := json.Unmarshal(received, answer); err != nil {
		// The parser's words could quote a secret.
		return gate.Permanent(errors.New("the answer is no JSON: that is no Infisical"))
	}
	return nil
}
