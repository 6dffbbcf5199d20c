package client

import (
	"fmt"
	"net/http"
	"strings"
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

func TestAKubeconfigThatRunsAProgramOrNamesAFileIsRefused(t *testing.T) {
	for _, c := range []struct{ user, cluster, other, want string }{
		{user: "token: a"},
		{user: "client-certificate-data: YQ==, client-key-data: YQ==",
			cluster: "certificate-authority-data: YQ=="},
		{user: "exec: {apiVersion: client.authentication.k8s.io/v1, command: sh, interactiveMode: Never}",
			want: `user "admin" runs the program "sh" (exec)`},
		{user: "auth-provider: {name: gcp}", want: `user "admin" uses the plugin "gcp" (auth-provider)`},
		{user: "client-certificate: /a.crt", want: `user "admin" names the file "/a.crt"`},
		{user: "client-key: b.key", want: `user "admin" names the file "b.key"`},
		{user: "tokenFile: /etc/shadow", want: `user "admin" names the file "/etc/shadow"`},
		{cluster: "certificate-authority: ca.crt", want: `cluster "blue" names the file "ca.crt"`},
		{other: "exec: {apiVersion: client.authentication.k8s.io/v1, command: sh}",
			want: `user "other" runs the program "sh"`},
	} {
		// client-go runs nothing yet when it reads this, so a test of a connection would prove less.
		_, err := restConfig(fmt.Appendf(nil, `apiVersion: v1
kind: Config
current-context: blue
clusters: [{name: blue, cluster: {server: "https://10.0.0.10:6443", %s}}]
contexts: [{name: blue, context: {cluster: blue, user: admin}}]
users: [{name: admin, user: {%s}}, {name: other, user: {%s}}]
`, c.cluster, c.user, c.other))
		if text := fmt.Sprint(err); c.want == "" && err != nil || !strings.Contains(text, c.want) {
			t.Errorf("got %v, want %q", err, c.want)
		}
	}
	if err := Inline([]byte("no kubeconfig")); err != nil {
		t.Errorf("a text that nothing can use: %v", err)
	}
}
