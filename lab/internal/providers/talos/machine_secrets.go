package talos

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"strings"
	"time"

	x509keys "github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/zclconf/go-cty/cty"
	"golang.org/x/mod/semver"

	"github.com/ephemeral-castle/castle/lab/internal/providers/plugin"
)

// renewal is the remaining lifetime at which the administrator's certificate is renewed.
const renewal = 30 * 24 * time.Hour

func machineSecrets() plugin.Resource {
	version := eitherText()
	version.Valid = validVersion
	return plugin.Resource{
		Version: 1,
		Schema: plugin.Block{Attributes: map[string]plugin.Attribute{
			"id":                   keptID(),
			"talos_version":        version,
			"machine_secrets":      machineSecretsAttribute(computedText(), computedText()),
			"client_configuration": access(computedText()),
		}},
		Plan:   planMachineSecrets,
		Create: createMachineSecrets,
		Update: updateMachineSecrets,
		Import: importMachineSecrets,
	}
}

func validVersion(x cty.Value) error {
	if _, err := config.ParseContractFromVersion(x.AsString()); err != nil {
		return problem("Invalid version", err)
	}
	return nil
}

func planMachineSecrets(_ context.Context, p *plugin.Plan) error {
	switch {
	case p.Change.Config["talos_version"].IsNull() && !p.Change.Planned.Known("talos_version"):
		p.Change.Planned["talos_version"] = cty.StringVal(defaultTalosVersion)
	case p.Change.Prior != nil && p.Change.Planned.Known("talos_version") &&
		semver.Compare(canonical(p.Change.Planned.String("talos_version")),
			canonical(p.Change.Prior.String("talos_version"))) < 0:
		// secrets of a later version may lack a field that an earlier one needs
		p.Forced = append(p.Forced, "talos_version")
	}
	if p.Change.Prior == nil {
		return nil
	}
	ends, err := notAfter(p.Change.Prior.Object("client_configuration").String("client_certificate"))
	if err != nil {
		return problem("failed to parse client certificate", err)
	}
	if ends.Before(time.Now().Add(renewal)) {
		p.SetUnknown("client_configuration")
	}
	return nil
}

func canonical(version string) string { return "v" + strings.TrimPrefix(version, "v") }

func notAfter(encoded string) (time.Time, error) {
	b, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return time.Time{}, err
	}
	block, _ := pem.Decode(b)
	if block == nil {
		return time.Time{}, errors.New("failed to parse PEM block")
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return time.Time{}, err
	}
	return certificate.NotAfter, nil
}

func createMachineSecrets(_ context.Context, c plugin.Change) (plugin.Values, error) {
	contract, err := config.ParseContractFromVersion(c.Planned.String("talos_version"))
	if err != nil {
		return nil, problem("failed to validate talos version", err)
	}
	// Up to Talos 1.6 the key of ServiceAccounts is ECDSA. For a later contract, Talos makes an RSA key of
	// 4096 bits, which takes the processor seven tenths of a second. One of 2048 takes one tenth.
	bundle, err := secrets.NewBundle(secrets.NewFixedClock(time.Now()), config.TalosVersion1_6)
	if err == nil && contract.UseRSAServiceAccountKey() {
		var key *x509keys.RSAKey
		if key, err = x509keys.NewRSAKey(x509keys.Bits(2048)); err == nil {
			bundle.Certs.K8sServiceAccount = &x509keys.PEMEncodedKey{Key: key.KeyPEM}
		}
	}
	if err != nil {
		return nil, problem("failed to generate secrets bundle", err)
	}
	return describeBundle(bundle)
}

func describeBundle(bundle *secrets.Bundle) (plugin.Values, error) {
	client, err := accessValues(bundle)
	if err != nil {
		return nil, problem("failed to convert secrets bundle to machine secrets", err)
	}
	return plugin.Values{"id": cty.StringVal("machine_secrets"), "machine_secrets": bundleValues(bundle),
		"client_configuration": client}, nil
}

// updateMachineSecrets keeps the secrets. It renews only a certificate that is about to expire.
func updateMachineSecrets(_ context.Context, c plugin.Change) (plugin.Values, error) {
	v := plugin.Values{"machine_secrets": c.Prior["machine_secrets"],
		"client_configuration": c.Prior["client_configuration"]}
	ends, err := notAfter(c.Prior.Object("client_configuration").String("client_certificate"))
	if err != nil || ends.After(time.Now().Add(renewal)) {
		return v, err
	}
	bundle, err := bundleOf(c.Prior.Object("machine_secrets"))
	if err != nil {
		return nil, problem("failed to convert machine secrets to secrets bundle", err)
	}
	v["client_configuration"], err = accessValues(bundle)
	return v, err
}

func importMachineSecrets(_ context.Context, id string) (plugin.Values, error) {
	bundle, err := secrets.LoadBundle(id)
	if err != nil {
		return nil, problem("failed to read machine secrets file", err)
	}
	v, err := describeBundle(bundle)
	if err != nil {
		return nil, err
	}
	v["talos_version"] = cty.StringVal("v1.3")
	return v, nil
}
