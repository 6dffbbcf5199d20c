package tls

import (
	"crypto/x509"
	"encoding/pem"
	"testing"

	"github.com/zclconf/go-cty/cty"
	"golang.org/x/crypto/ssh"

	"github.com/ephemeral-castle/castle/lab/internal/providers/plugin"
	"github.com/ephemeral-castle/castle/lab/internal/providers/plugin/plugintest"
)

func TestEveryFormOfAKeyIsTheSameKey(t *testing.T) {
	for _, c := range []struct{ algorithm, curve, form string }{
		{"RSA", "", "RSA PRIVATE KEY"}, {"ECDSA", "P384", "EC PRIVATE KEY"}, {"ED25519", "", "PRIVATE KEY"},
	} {
		t.Run(c.algorithm, func(t *testing.T) {
			r := plugintest.New(t, New(), "tls_private_key")
			config := plugin.Values{"algorithm": cty.StringVal(c.algorithm)}
			if c.curve != "" {
				config["ecdsa_curve"] = cty.StringVal(c.curve)
			}
			if diagnostics := r.Apply(config); len(diagnostics) > 0 {
				t.Fatal(diagnostics[0].Detail)
			}
			r.Settled(config)
			get := func(name string) []byte { return []byte(r.State.GetAttr(name).AsString()) }
			if block, _ := pem.Decode(get("private_key_pem")); block == nil || block.Type != c.form {
				t.Errorf("private_key_pem is no %s", c.form)
			}
			block, _ := pem.Decode(get("private_key_pem_pkcs8"))
			if _, err := x509.ParsePKCS8PrivateKey(block.Bytes); err != nil {
				t.Error(err)
			}
			for _, name := range []string{"private_key_pem", "private_key_openssh"} {
				key, err := ssh.ParsePrivateKey(get(name))
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				if got := string(ssh.MarshalAuthorizedKey(key.PublicKey())); got != string(
					get("public_key_openssh")) {
					t.Errorf("%s belongs to another public key", name)
				}
				if ssh.FingerprintSHA256(key.PublicKey()) != string(get("public_key_fingerprint_sha256")) {
					t.Errorf("%s has another fingerprint", name)
				}
			}
		})
	}
}
