package vault

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// Fill mounts a KV engine of version 2 and puts one secret into it.
func (s *Server) Fill(ctx context.Context, mount, path string, secrets map[string]string) error {
	kv := map[string]any{"type": "kv", "options": map[string]string{"version": "2"}}
	if err := s.Call(ctx, http.MethodPost, "sys/mounts/"+mount, kv, nil); err != nil {
		return err
	}
	return s.Call(ctx, http.MethodPost, mount+"/data/"+path, map[string]any{"data": secrets}, nil)
}

// Token returns a token with the permissions of the policy and no others. The policy gets the name.
func (s *Server) Token(ctx context.Context, name, policy string) (string, error) {
	if err := s.Call(ctx, http.MethodPut, "sys/policies/acl/"+name, map[string]string{"policy": policy},
		nil); err != nil {
		return "", err
	}
	var made struct {
		Auth struct {
			ClientToken string `json:"client_token"`
		}
	}
	err := s.Call(ctx, http.MethodPost, "auth/token/create-orphan",
		map[string]any{"policies": []string{name}, "period": "24h"}, &made)
	return made.Auth.ClientToken, err
}

// AppRole permits a login with the two ids, and grants the policy to it.
func (s *Server) AppRole(ctx context.Context, mount, id, secret, policy string) error {
	role := "auth/" + mount + "/role/" + policy
	for _, step := range []struct {
		path string
		body map[string]any
	}{
		{"sys/auth/" + mount, map[string]any{"type": "approle"}},
		{role, map[string]any{"token_policies": []string{policy}}},
		{role + "/role-id", map[string]any{"role_id": id}},
		{role + "/custom-secret-id", map[string]any{"secret_id": secret}},
	} {
		if err := s.Call(ctx, http.MethodPost, step.path, step.body, nil); err != nil {
			return err
		}
	}
	return nil
}

// Call sends a request to Vault as its operator. It retries while a new engine
// does not accept writes yet.
func (s *Server) Call(ctx context.Context, method, path string, body, answer any) error {
	for {
		err := s.once(ctx, method, path, body, answer)
		if err == nil || !strings.Contains(err.Error(), "Upgrading from non-versioned to versioned") ||
			ctx.Err() != nil {
			return err
		}
	}
}

func (s *Server) once(ctx context.Context, method, path string, body, answer any) error {
	sent, err := json.Marshal(body) // no body is null, which Vault takes for one
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, method, s.address.JoinPath("v1", path).String(),
		bytes.NewReader(sent))
	if err != nil {
		return err
	}
	r.Header.Set("X-Vault-Token", s.keys.RootToken)
	response, err := s.client.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close() //nolint:errcheck // it was only read
	received, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode >= http.StatusBadRequest {
		var answer struct{ Errors []string }
		if json.Unmarshal(received, &answer) != nil || len(answer.Errors) == 0 {
			answer.Errors = []string{response.Status}
		}
		return fmt.Errorf("vault: %s %s: %w", method, path, errors.New(strings.Join(answer.Errors, "; ")))
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(received, answer)
}
