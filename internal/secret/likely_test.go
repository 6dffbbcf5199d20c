package secret

import "testing"

func TestHideLikelyHidesCredentials(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"postgres://shop:hunter2@db:5432/shop", "postgres://shop:(sensitive)@db:5432/shop"},
		{"Authorization: Bearer abcdefghijkl", "Authorization: Bearer (sensitive)"},
		{`{"password":"hunter2","user":"shop"}`, `{"password":"(sensitive)","user":"shop"}`},
		{"--token=abcdef --verbose", "--token=(sensitive) --verbose"},
		{"a eyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM0.c2lnbmF0dXJl b", "a (sensitive) b"},
		{"-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----\nafter", "(sensitive)\nafter"},
		{"serviceAccountToken:\n  expiry: 3607", "serviceAccountToken:\n  expiry: 3607"},
		{`secret "web-tls" not found`, `secret "web-tls" not found`},
		{"https://registry.test:5000/web:1", "https://registry.test:5000/web:1"},
		{"secret shop/web-tls does not exist", "secret shop/web-tls does not exist"},
	} {
		if got := HideLikely(test.text); got != test.want {
			t.Errorf("%q becomes %q, want %q", test.text, got, test.want)
		}
	}
}

func TestLikelyNameFindsNamesOfCredentials(t *testing.T) {
	for name, want := range map[string]bool{
		"DB_PASSWORD": true, "apiKey": true, "AWS_SECRET_ACCESS_KEY": true, "GITHUB_TOKEN": true,
		"secretName":     false,
		"tokenSecretRef": false, "passwordFile": false, "image": false, "key": false,
		"secret-namespace":              false,
		"external-secrets.io/component": false, "example.test/token": true,
	} {
		if LikelyName(name) != want {
			t.Errorf("%s: want %v", name, want)
		}
	}
}
