package client

import (
	"net/http"
	"testing"
)

func TestNoProxyOfTheEnvironmentIsUsed(t *testing.T) {
	t.Setenv("HTTPS_PROXY", "http://127.0.0.1:1")
	// Go never uses a proxy for a loopback address, so the configuration itself is checked.
	config, err := restConfig([]byte(`apiVersion: v1
kind: Config
current-context: blue
clusters: [{name: blue, cluster: {server: "https://10.0.0.10:6443"}}]
contexts: [{name: blue, context: {cluster: blue, user: admin}}]
users: [{name: admin, user: {token: a}}]
`))
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequest(http.MethodGet, "https://10.0.0.10:6443", nil)
	if err != nil {
		t.Fatal(err)
	}
	if proxy, err := config.Proxy(request); proxy != nil || err != nil {
		t.Errorf("requests would go through %v (%v)", proxy, err)
	}
}
