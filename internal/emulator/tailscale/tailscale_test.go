package tailscale

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"
)

// tailnet is a server, and a client that has logged in.
type tailnet struct {
	server         *Server
	address, token string
	now            time.Time
}

func newTailnet(t *testing.T) *tailnet {
	t.Helper()
	n := &tailnet{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	n.server = New(Config{ClientID: "id", ClientSecret: "secret", Tags: []string{"tag:node"},
		Domain: "lab.ts.net", Now: func() time.Time { return n.now }})
	at := httptest.NewServer(n.server.Handler())
	t.Cleanup(at.Close)
	n.address = at.URL
	answer, err := http.PostForm(n.address+"/api/v2/oauth/token",
		url.Values{"client_id": {"id"}, "client_secret": {"secret"}})
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var body struct {
		Token string `json:"access_token"`
	}
	if err := json.NewDecoder(answer.Body).Decode(&body); err != nil || body.Token == "" {
		t.Fatalf("%+v, %v", body, err)
	}
	n.token = body.Token
	return n
}

// call sends a request; status and the decoded answer come back.
func (n *tailnet) call(t *testing.T, method, path, body string) (int, map[string]any) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, n.address+path, bytes.NewBufferString(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+n.token)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var got map[string]any
	if err := json.NewDecoder(answer.Body).Decode(&got); err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, got
}

const single = `{"expirySeconds": 3600, "capabilities": {"devices": {"create": {"preauthorized": true,
	"tags": ["tag:node"]}}}}`

func TestAKeyForOneDeviceIsDeadOnceOneHasUsedIt(t *testing.T) {
	n := newTailnet(t)
	_, made := n.call(t, http.MethodPost, "/api/v2/tailnet/-/keys", single)
	secret, id := made["key"].(string), made["id"].(string)
	if status, read := n.call(t, http.MethodGet, "/api/v2/tailnet/-/keys/"+id, ""); status != http.StatusOK ||
		read["key"] != nil || read["invalid"] != false {
		t.Errorf("%d %v", status, read)
	}
	d, err := n.server.Register(secret, "blue-cp-01")
	if err != nil || d.Name != "blue-cp-01.lab.ts.net" || !d.Authorized {
		t.Fatalf("%+v, %v", d, err)
	}
	if _, err := n.server.Register(secret, "intruder"); !errors.Is(err, ErrKey) {
		t.Errorf("a second device: %v", err)
	}
	if status, _ := n.call(t, http.MethodGet, "/api/v2/tailnet/-/keys/"+id, ""); status != 404 {
		t.Errorf("a used key: %d", status)
	}
}

func TestAnUnusedKeyExpires(t *testing.T) {
	n := newTailnet(t)
	_, made := n.call(t, http.MethodPost, "/api/v2/tailnet/-/keys", single)
	n.now = n.now.Add(time.Hour + time.Second)
	if _, err := n.server.Register(made["key"].(string), "late"); !errors.Is(err, ErrKey) {
		t.Errorf("after an hour: %v", err)
	}
	_, read := n.call(t, http.MethodGet, "/api/v2/tailnet/-/keys/"+made["id"].(string), "")
	if read["invalid"] != true {
		t.Errorf("after an hour: %v", read)
	}
}

func TestADeviceGetsItsNameBackOnceTheOldOneIsDeleted(t *testing.T) {
	n := newTailnet(t)
	join := func() string {
		_, made := n.call(t, http.MethodPost, "/api/v2/tailnet/-/keys", single)
		d, err := n.server.Register(made["key"].(string), "cp-01")
		if err != nil {
			t.Fatal(err)
		}
		return d.Name
	}
	if a, b := join(), join(); a != "cp-01.lab.ts.net" || b != "cp-01-1.lab.ts.net" {
		t.Errorf("%s, %s", a, b)
	}
	for _, d := range n.server.Devices() {
		if status, _ := n.call(t, http.MethodDelete, "/api/v2/device/"+d.ID, ""); status != http.StatusOK {
			t.Errorf("delete: %d", status)
		}
	}
	if again := join(); again != "cp-01.lab.ts.net" {
		t.Error(again)
	}
}

func TestTheAPIRefuses(t *testing.T) {
	n := newTailnet(t)
	for body, want := range map[string]string{
		`{"capabilities": {"devices": {"create": {"tags": ["tag:other"]}}}}`: "requested tags [tag:other] " +
			"are invalid or not permitted",
		`{}`: "tailnet-owned auth key must have tags set",
	} {
		if status, got := n.call(t, http.MethodPost, "/api/v2/tailnet/-/keys", body); status != 400 ||
			got["message"] != want {
			t.Errorf("%s: %d %v", body, status, got)
		}
	}
	n.token = "another"
	if status, got := n.call(t, http.MethodGet, "/api/v2/tailnet/-/devices", ""); status != 401 ||
		got["message"] != "API token invalid" {
		t.Errorf("%d %v", status, got)
	}
}
