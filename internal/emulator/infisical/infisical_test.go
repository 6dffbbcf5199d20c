package infisical_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/ephemeral-castle/castle/internal/emulator/infisical"
)

func blue() infisical.Folder {
	return infisical.Folder{Workspace: "p1", Environment: "prod", Path: "/blue"}
}

type client struct {
	t     *testing.T
	url   string
	token string
}

func start(t *testing.T) (*infisical.Server, *client) {
	t.Helper()
	server := infisical.New(infisical.Config{ClientID: "castle", ClientSecret: "open sesame"})
	listener := httptest.NewServer(server.Handler())
	t.Cleanup(listener.Close)
	c := &client{t: t, url: listener.URL}
	_, answer := c.call("POST", "/api/v1/auth/universal-auth/login", map[string]any{"clientId": "castle",
		"clientSecret": "open sesame"})
	c.token = answer["accessToken"].(string)
	return server, c
}

func (c *client) call(method, path string, body any) (int, map[string]any) {
	c.t.Helper()
	sent, err := json.Marshal(body)
	if err != nil {
		c.t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(c.t.Context(), method, c.url+path, bytes.NewReader(sent))
	if err != nil {
		c.t.Fatal(err)
	}
	if c.token != "" {
		request.Header.Set("Authorization", "Bearer "+c.token)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		c.t.Fatal(err)
	}
	defer response.Body.Close()
	var answer map[string]any
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		c.t.Fatal(err)
	}
	return response.StatusCode, answer
}

func inBlue(value string) map[string]any {
	return map[string]any{"workspaceId": "p1", "environment": "prod", "secretPath": "/blue", "type": "shared",
		"secretValue": value}
}

const byName = "/api/v3/secrets/raw/KUBECONFIG?workspaceId=p1&environment=prod&type=shared&secretPath=%2Fblue"

func TestSecretIsCreatedOnceChangedAndDeleted(t *testing.T) {
	server, c := start(t)
	server.SetSecret(blue(), "OTHER", "x")
	if status, _ := c.call("GET", byName, nil); status != 404 {
		t.Fatalf("a missing secret: status %d", status)
	}
	status, answer := c.call("POST", "/api/v3/secrets/raw/KUBECONFIG", inBlue("one"))
	if status != 200 {
		t.Fatalf("create: %d %v", status, answer)
	}
	status, answer = c.call("POST", "/api/v3/secrets/raw/KUBECONFIG", inBlue("two"))
	if status != 400 || !strings.Contains(answer["message"].(string), "already exist") ||
		answer["error"] != "BadRequest" {
		t.Fatalf("a second create: %d %v", status, answer)
	}
	if got := server.Secrets()[0]; got.Key != "KUBECONFIG" || got.Value != "one" || got.Version != 1 {
		t.Fatalf("the refused create changed the secret: %+v", got)
	}
	if status, _ = c.call("PATCH", "/api/v3/secrets/raw/KUBECONFIG", inBlue("three")); status != 200 {
		t.Fatalf("update: %d", status)
	}
	_, answer = c.call("GET", byName, nil)
	secret := answer["secret"].(map[string]any)
	if secret["secretValue"] != "three" || secret["version"] != 2.0 || secret["secretPath"] != "/blue" {
		t.Fatalf("after the update: %v", secret)
	}
	_, answer = c.call("GET", "/api/v3/secrets/raw/id/"+secret["id"].(string), nil)
	if answer["secret"].(map[string]any)["secretKey"] != "KUBECONFIG" {
		t.Fatalf("by id: %v", answer)
	}
	if status, _ = c.call("DELETE", "/api/v3/secrets/raw/KUBECONFIG", inBlue("")); status != 200 {
		t.Fatalf("delete: %d", status)
	}
	if left := server.Secrets(); len(left) != 1 || left[0].Key != "OTHER" {
		t.Fatalf("after the delete: %+v", left)
	}
}

func TestListHasOneFolderOnly(t *testing.T) {
	server, c := start(t)
	server.SetSecret(blue(), "B", "2")
	server.SetSecret(blue(), "A", "1")
	server.SetSecret(infisical.Folder{Workspace: "p1", Environment: "prod", Path: "/green"}, "C", "3")
	_, answer := c.call("GET", "/api/v3/secrets/raw?workspaceId=p1&environment=prod&secretPath=/blue/", nil)
	secrets := answer["secrets"].([]any)
	if len(secrets) != 2 || secrets[0].(map[string]any)["secretKey"] != "A" ||
		secrets[1].(map[string]any)["secretValue"] != "2" {
		t.Fatalf("list: %v", secrets)
	}
	for query, message := range map[string]string{
		"workspaceId=p1&environment=prod&secretPath=/nowhere": "Folder with path '/nowhere' in environment " +
			"with slug 'prod' not found",
		"workspaceId=p2&environment=prod": "Project with ID 'p2' not found",
	} {
		status, answer := c.call("GET", "/api/v3/secrets/raw?"+query, nil)
		if status != 404 || answer["message"] != message {
			t.Errorf("%s: %d %v", query, status, answer)
		}
	}
}

func TestWrongCredentialsAreRejected(t *testing.T) {
	_, c := start(t)
	status, answer := c.call("POST", "/api/v1/auth/universal-auth/login", map[string]any{"clientId": "castle",
		"clientSecret": "guess"})
	if status != 401 || answer["message"] != "Invalid credentials" {
		t.Errorf("wrong secret: %d %v", status, answer)
	}
	c.token = "forged"
	if status, _ = c.call("GET", byName, nil); status != 403 {
		t.Errorf("forged token: %d", status)
	}
	c.token = ""
	if status, _ = c.call("GET", byName, nil); status != 401 {
		t.Errorf("no token: %d", status)
	}
}

func TestThrottledRequestsGetA429(t *testing.T) {
	server, c := start(t)
	server.SetSecret(blue(), "KUBECONFIG", "x")
	server.Throttle(1, 3*time.Second)
	if status, _ := c.call("GET", byName, nil); status != 429 {
		t.Errorf("throttled: %d", status)
	}
	if status, _ := c.call("GET", byName, nil); status != 200 {
		t.Errorf("after the throttled one: %d", status)
	}
}

func TestRequestsHaveNoSecretValues(t *testing.T) {
	server, c := start(t)
	server.SetSecret(blue(), "OTHER", "x")
	c.call("POST", "/api/v3/secrets/raw/KUBECONFIG", inBlue("hush"))
	requests := server.Requests()
	if len(requests) != 2 || requests[1] != (infisical.Request{Method: "POST",
		Path: "/api/v3/secrets/raw/KUBECONFIG", Status: 200}) {
		t.Errorf("requests: %+v", requests)
	}
}

func TestTheTokenIsCheckedBeforeTheBody(t *testing.T) {
	_, c := start(t)
	c.token = ""
	for _, method := range []string{"POST", "PATCH", "DELETE"} {
		if status, answer := c.call(method, byName, "no object"); status != 401 {
			t.Errorf("%s: %d %v", method, status, answer)
		}
	}
	if status, answer := c.call("POST", "/api/v9/other", "no object"); status != 404 {
		t.Errorf("an unknown route: %d %v", status, answer)
	}
}
