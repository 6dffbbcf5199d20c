package tls

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha1" //nolint:gosec // an id, as in the real provider
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"fmt"

	"github.com/zclconf/go-cty/cty"
	"golang.org/x/crypto/ssh"

	"github.com/ephemeral-castle/castle/lab/internal/providers/plugin"
)

func privateKey() plugin.Resource {
	computed := plugin.Attribute{Type: cty.String, Computed: true, Keep: true}
	hidden := computed
	hidden.Sensitive = true
	return plugin.Resource{
		Version: 1,
		Schema: plugin.Block{Attributes: map[string]plugin.Attribute{
			"algorithm": {Type: cty.String, Required: true, Replace: true,
				Valid: oneOf("algorithm", "RSA", "ECDSA", "ED25519")},
			"rsa_bits": {Type: cty.Number, Optional: true, Computed: true,
				Default: cty.NumberIntVal(2048), Replace: true},
			"ecdsa_curve": {Type: cty.String, Optional: true, Computed: true,
				Default: cty.StringVal("P224"), Replace: true,
				Valid: oneOf("ecdsa_curve", "P224", "P256", "P384", "P521")},
			"private_key_pem":               hidden,
			"private_key_openssh":           hidden,
			"private_key_pem_pkcs8":         hidden,
			"public_key_pem":                computed,
			"public_key_openssh":            computed,
			"public_key_fingerprint_md5":    computed,
			"public_key_fingerprint_sha256": computed,
			"id":                            computed,
		}},
		Create: createKey,
		// Every argument is Replace, so an update has nothing to do.
		Update: func(context.Context, plugin.Change) (plugin.Values, error) { return plugin.Values{}, nil },
	}
}

func oneOf(name string, allowed ...string) func(cty.Value) error {
	return func(x cty.Value) error {
		for _, a := range allowed {
			if x.AsString() == a {
				return nil
			}
		}
		return &plugin.Problem{Summary: "Invalid Attribute Value Match",
			Detail: fmt.Sprintf("Attribute %s value must be one of: %q, got: %q", name, allowed,
				x.AsString())}
	}
}

func createKey(_ context.Context, c plugin.Change) (plugin.Values, error) {
	key, err := generate(c.Planned)
	if err == nil {
		var v plugin.Values
		if v, err = describe(key); err == nil {
			return v, nil
		}
	}
	return nil, &plugin.Problem{Summary: "Unable to generate Key from configuration", Detail: err.Error()}
}

func generate(v plugin.Values) (crypto.Signer, error) {
	switch v.String("algorithm") {
	case "RSA":
		return rsa.GenerateKey(rand.Reader, int(v.Int("rsa_bits")))
	case "ECDSA":
		curves := map[string]elliptic.Curve{"P224": elliptic.P224(), "P256": elliptic.P256(),
			"P384": elliptic.P384(), "P521": elliptic.P521()}
		return ecdsa.GenerateKey(curves[v.String("ecdsa_curve")], rand.Reader)
	default:
		_, key, err := ed25519.GenerateKey(rand.Reader)
		return key, err
	}
}

func describe(key crypto.Signer) (plugin.Values, error) {
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	own := &pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8} // Ed25519 has no older form
	switch k := key.(type) {
	case *rsa.PrivateKey:
		own = &pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(k)}
	case *ecdsa.PrivateKey:
		own = &pem.Block{Type: "EC PRIVATE KEY"}
		if own.Bytes, err = x509.MarshalECPrivateKey(k); err != nil {
			return nil, err
		}
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, err
	}
	publicPEM := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})
	id := sha1.Sum(publicPEM) //nolint:gosec // an id, as in the real provider
	v := plugin.Values{
		"id":              cty.StringVal(hex.EncodeToString(id[:])),
		"private_key_pem": cty.StringVal(string(pem.EncodeToMemory(own))),
		"private_key_pem_pkcs8": cty.StringVal(
			string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}))),
		"public_key_pem":                cty.StringVal(string(publicPEM)),
		"private_key_openssh":           cty.StringVal(""),
		"public_key_openssh":            cty.StringVal(""),
		"public_key_fingerprint_md5":    cty.StringVal(""),
		"public_key_fingerprint_sha256": cty.StringVal(""),
	}
	return v, describeSSH(v, key)
}

// describeSSH adds the SSH forms, which a P-224 key has none of.
func describeSSH(v plugin.Values, key crypto.Signer) error {
	if k, ok := key.(*ecdsa.PrivateKey); ok && k.Curve == elliptic.P224() {
		return nil
	}
	public, err := ssh.NewPublicKey(key.Public())
	if err != nil {
		return err
	}
	private, err := ssh.MarshalPrivateKey(key, "")
	if err != nil {
		return err
	}
	v["private_key_openssh"] = cty.StringVal(string(pem.EncodeToMemory(private)))
	v["public_key_openssh"] = cty.StringVal(string(ssh.MarshalAuthorizedKey(public)))
	v["public_key_fingerprint_md5"] = cty.StringVal(ssh.FingerprintLegacyMD5(public))
	v["public_key_fingerprint_sha256"] = cty.StringVal(ssh.FingerprintSHA256(public))
	return nil
}
