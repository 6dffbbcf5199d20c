package tls

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/sha1" //nolint:gosec // an id, as in the real provider
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"math/big"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/lab/internal/providers/plugin"
)

func keptText() plugin.Attribute {
	return plugin.Attribute{Type: cty.String, Computed: true, Keep: true}
}

func givenText(sensitive bool) plugin.Attribute {
	return plugin.Attribute{Type: cty.String, Required: true, Replace: true, Sensitive: sensitive}
}

// certRequest has the parts of a subject that the stages use.
func certRequest() plugin.Resource {
	name := plugin.Attribute{Type: cty.String, Optional: true, Replace: true}
	return plugin.Resource{
		Schema: plugin.Block{
			Attributes: map[string]plugin.Attribute{
				"private_key_pem": givenText(true), "cert_request_pem": keptText(),
				"key_algorithm": keptText(), "id": keptText(),
			},
			Blocks: map[string]plugin.NestedBlock{"subject": {Mode: plugin.List, Block: plugin.Block{
				Attributes: map[string]plugin.Attribute{"organization": name, "common_name": name}}}},
		},
		Create: createRequest,
		Update: nothing,
	}
}

// nothing is an update of a resource whose every argument is Replace, or counts at the next plan only.
func nothing(context.Context, plugin.Change) (plugin.Values, error) { return plugin.Values{}, nil }

func createRequest(_ context.Context, c plugin.Change) (plugin.Values, error) {
	key, algorithm, err := parseKey(c.Planned.String("private_key_pem"))
	if err != nil {
		return nil, &plugin.Problem{Summary: "Failed to parse private key PEM", Detail: err.Error()}
	}
	template := &x509.CertificateRequest{}
	for _, subject := range c.Planned.Objects("subject") {
		template.Subject = pkix.Name{CommonName: subject.String("common_name")}
		if org := subject.String("organization"); org != "" {
			template.Subject.Organization = []string{org}
		}
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	if err != nil {
		return nil, &plugin.Problem{Summary: "Error creating certificate request", Detail: err.Error()}
	}
	id := sha1.Sum(der) //nolint:gosec // an id, as in the real provider
	return plugin.Values{
		"cert_request_pem": encode("CERTIFICATE REQUEST", der), "key_algorithm": cty.StringVal(algorithm),
		"id": cty.StringVal(hex.EncodeToString(id[:])),
	}, nil
}

func encode(kind string, der []byte) cty.Value {
	return cty.StringVal(string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})))
}

// parseKey accepts the preambles that the real provider knows, and no other.
func parseKey(text string) (key crypto.Signer, algorithm string, err error) {
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return nil, "", fmt.Errorf("failed to decode PEM block: decoded bytes %d, undecoded %[1]d", len(text))
	}
	var parsed any
	switch block.Type {
	case "RSA PRIVATE KEY":
		parsed, err = x509.ParsePKCS1PrivateKey(block.Bytes)
	case "EC PRIVATE KEY":
		parsed, err = x509.ParseECPrivateKey(block.Bytes)
	case "PRIVATE KEY":
		parsed, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	default:
		err = fmt.Errorf("unsupported PEM preamble/type: %s", block.Type)
	}
	if err != nil {
		return nil, "", err
	}
	key = parsed.(crypto.Signer)
	algorithm = map[string]string{"*rsa.PrivateKey": "RSA", "*ecdsa.PrivateKey": "ECDSA",
		"ed25519.PrivateKey": "ED25519"}[fmt.Sprintf("%T", key)]
	return key, algorithm, nil
}

func locallySignedCert() plugin.Resource {
	hours := plugin.Attribute{Type: cty.Number, Required: true, Replace: true}
	early := plugin.Attribute{Type: cty.Number, Optional: true, Computed: true, Default: cty.NumberIntVal(0)}
	flag := plugin.Attribute{Type: cty.Bool, Optional: true, Computed: true, Default: cty.False,
		Replace: true}
	return plugin.Resource{
		Schema: plugin.Block{Attributes: map[string]plugin.Attribute{
			"cert_request_pem": givenText(false), "ca_cert_pem": givenText(false),
			"ca_private_key_pem":    givenText(true),
			"validity_period_hours": hours, "early_renewal_hours": early,
			"allowed_uses":       {Type: cty.List(cty.String), Required: true, Replace: true},
			"set_subject_key_id": flag, "is_ca_certificate": flag,
			"ready_for_renewal": {Type: cty.Bool, Computed: true, Default: cty.False},
			"cert_pem":          keptText(), "ca_key_algorithm": keptText(), "id": keptText(),
			"validity_start_time": keptText(), "validity_end_time": keptText(),
		}},
		Plan:   planCert,
		Create: createCert,
		Update: nothing,
	}
}

// planCert replaces a certificate that has expired, or has only its last early_renewal_hours left.
func planCert(_ context.Context, p *plugin.Plan) error {
	if p.Change.Prior == nil || !p.Change.Planned.Known("validity_end_time") {
		return nil
	}
	ends, err := time.Parse(time.RFC3339, p.Change.Planned.String("validity_end_time"))
	if err != nil {
		return &plugin.Problem{Summary: "Failed to parse data from string", Detail: err.Error()}
	}
	early := time.Duration(p.Change.Planned.Int("early_renewal_hours")) * time.Hour
	if !time.Now().Before(ends.Add(-early)) {
		p.SetUnknown("ready_for_renewal")
		p.Forced = append(p.Forced, "ready_for_renewal")
	}
	return nil
}

func createCert(_ context.Context, c plugin.Change) (plugin.Values, error) {
	key, algorithm, err := parseKey(c.Planned.String("ca_private_key_pem"))
	if err != nil {
		return nil, &plugin.Problem{Summary: "Failed to parse CA private key PEM", Detail: err.Error()}
	}
	request, _ := pem.Decode([]byte(c.Planned.String("cert_request_pem")))
	authority, _ := pem.Decode([]byte(c.Planned.String("ca_cert_pem")))
	if request == nil || authority == nil {
		return nil, &plugin.Problem{Summary: "Failed to parse PEM", Detail: "failed to decode PEM"}
	}
	asked, err := x509.ParseCertificateRequest(request.Bytes)
	if err != nil {
		return nil, &plugin.Problem{Summary: "Failed to parse certificate request PEM", Detail: err.Error()}
	}
	parent, err := x509.ParseCertificate(authority.Bytes)
	if err != nil {
		return nil, &plugin.Problem{Summary: "Failed to parse CA certificate PEM", Detail: err.Error()}
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 128))
	if err != nil {
		return nil, err
	}
	begins := time.Now()
	template := &x509.Certificate{
		SerialNumber: serial, Subject: asked.Subject, BasicConstraintsValid: true,
		NotBefore: begins, IsCA: c.Planned.Bool("is_ca_certificate"),
		NotAfter: begins.Add(time.Duration(c.Planned.Int("validity_period_hours")) * time.Hour),
	}
	for _, use := range c.Planned.Strings("allowed_uses") {
		template.KeyUsage |= map[string]x509.KeyUsage{"digital_signature": x509.KeyUsageDigitalSignature,
			"key_encipherment": x509.KeyUsageKeyEncipherment, "cert_signing": x509.KeyUsageCertSign}[use]
		if extended, is := map[string]x509.ExtKeyUsage{"client_auth": x509.ExtKeyUsageClientAuth,
			"server_auth": x509.ExtKeyUsageServerAuth}[use]; is {
			template.ExtKeyUsage = append(template.ExtKeyUsage, extended)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, asked.PublicKey, key)
	if err != nil {
		return nil, &plugin.Problem{Summary: "Failed to create certificate", Detail: err.Error()}
	}
	return plugin.Values{
		"cert_pem": encode("CERTIFICATE", der), "id": cty.StringVal(serial.String()),
		"ca_key_algorithm":    cty.StringVal(algorithm),
		"validity_start_time": cty.StringVal(template.NotBefore.Format(time.RFC3339Nano)),
		"validity_end_time":   cty.StringVal(template.NotAfter.Format(time.RFC3339Nano)),
		"ready_for_renewal":   cty.False,
	}, nil
}
