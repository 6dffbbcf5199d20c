package client

import (
	"regexp"
	"strings"
	"testing"
)

var files = regexp.MustCompile(`(?i)certificate-authority\W|client-certificate\W|client-key\W|tokenFile`)

// FuzzKubeconfig reads a kubeconfig. An error does not quote its key, and what is accepted names a server.
func FuzzKubeconfig(f *testing.F) {
	const key = "c2VjcmV0LWtleS1vZi10aGUtYWRtaW4="
	head := "apiVersion: v1\nkind: Config\ncurrent-context: a\n" +
		"contexts: [{name: a, context: {cluster: a, user: a}}]\nclusters:\n- name: a\n  cluster: "
	for _, seed := range []string{
		head + "{server: 'https://192.0.2.1:6443'}\nusers: [{name: a, user: {token: " + key + "}}]\n",
		head + "{server: '192.0.2.1', insecure-skip-tls-verify: true}\nusers: []\n",
		head + "{server: ':', certificate-authority-data: " + key + "}\n",
		"users: [{name: a, user: {client-key-data: " + key, "kind: Config\n", "{", "\x00", "null",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if files.Match(text) {
			t.Skip("it names files of this machine")
		}
		a, err := Open(text, "")
		if err == nil && (a.Host == "" || a.Host != a.Server.Host) {
			t.Errorf("no server in %+v", a.Server)
		}
		identity, failed := ClusterIdentity(text)
		again, _ := ClusterIdentity(text)
		if identity != again || failed == nil && identity == "" {
			t.Errorf("identity %q, then %q", identity, again)
		}
		for _, err := range []error{err, failed} {
			if err != nil && strings.Contains(err.Error(), key) {
				t.Errorf("the key is shown: %v", err)
			}
			if err != nil && !strings.HasPrefix(err.Error(), "kubeconfig: ") {
				t.Errorf("no file is named: %v", err)
			}
		}
	})
}
