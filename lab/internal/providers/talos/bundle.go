package talos

import (
	"encoding/base64"
	"errors"
	"time"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/lab/internal/providers/plugin"
)

// machineSecretsAttribute is the object machine_secrets: computed by the
// resource, and required by the data source but for its one optional part.
func machineSecretsAttribute(like, optional plugin.Attribute) plugin.Attribute {
	pair := func() plugin.Attribute {
		return object(like, map[string]plugin.Attribute{"cert": like, "key": secret(like)})
	}
	return object(like, map[string]plugin.Attribute{
		"cluster": object(like, map[string]plugin.Attribute{"id": like, "secret": secret(like)}),
		"secrets": object(like, map[string]plugin.Attribute{
			"bootstrap_token":             secret(like),
			"secretbox_encryption_secret": secret(like),
			"aescbc_encryption_secret":    secret(optional),
		}),
		"trustdinfo": object(like, map[string]plugin.Attribute{"token": secret(like)}),
		"certs": object(like, map[string]plugin.Attribute{
			"etcd":               pair(),
			"k8s":                pair(),
			"k8s_aggregator":     pair(),
			"k8s_serviceaccount": object(like, map[string]plugin.Attribute{"key": secret(like)}),
			"os":                 pair(),
		}),
	})
}

func encoded(b []byte) cty.Value { return plugin.Text(base64.StdEncoding.EncodeToString(b)) }

// bundleValues is a bundle as the object machine_secrets.
func bundleValues(b *secrets.Bundle) cty.Value {
	pair := func(p *x509.PEMEncodedCertificateAndKey) cty.Value {
		return plugin.Object(plugin.Values{"cert": encoded(p.Crt), "key": encoded(p.Key)})
	}
	return plugin.Object(plugin.Values{
		"cluster": plugin.Object(plugin.Values{"id": plugin.Text(b.Cluster.ID),
			"secret": plugin.Text(b.Cluster.Secret)}),
		"secrets": plugin.Object(plugin.Values{
			"bootstrap_token":             plugin.Text(b.Secrets.BootstrapToken),
			"secretbox_encryption_secret": plugin.Text(b.Secrets.SecretboxEncryptionSecret),
			"aescbc_encryption_secret":    plugin.Text(b.Secrets.AESCBCEncryptionSecret),
		}),
		"trustdinfo": plugin.Object(plugin.Values{"token": plugin.Text(b.TrustdInfo.Token)}),
		"certs": plugin.Object(plugin.Values{
			"etcd":               pair(b.Certs.Etcd),
			"k8s":                pair(b.Certs.K8s),
			"k8s_aggregator":     pair(b.Certs.K8sAggregator),
			"k8s_serviceaccount": plugin.Object(plugin.Values{"key": encoded(b.Certs.K8sServiceAccount.Key)}),
			"os":                 pair(b.Certs.OS),
		}),
	})
}

// bundleOf reads the object machine_secrets.
func bundleOf(v plugin.Values) (*secrets.Bundle, error) {
	var failed error
	decode := func(v plugin.Values, name string) []byte {
		b, err := base64.StdEncoding.DecodeString(v.String(name))
		failed = errors.Join(failed, err)
		return b
	}
	certs := v.Object("certs")
	pair := func(name string) *x509.PEMEncodedCertificateAndKey {
		return &x509.PEMEncodedCertificateAndKey{Crt: decode(certs.Object(name), "cert"),
			Key: decode(certs.Object(name), "key")}
	}
	keys := v.Object("secrets")
	return &secrets.Bundle{
		Clock: secrets.NewFixedClock(time.Now()),
		Cluster: &secrets.Cluster{ID: v.Object("cluster").String("id"),
			Secret: v.Object("cluster").String("secret")},
		Secrets: &secrets.Secrets{
			BootstrapToken:            keys.String("bootstrap_token"),
			SecretboxEncryptionSecret: keys.String("secretbox_encryption_secret"),
			AESCBCEncryptionSecret:    keys.String("aescbc_encryption_secret"),
		},
		TrustdInfo: &secrets.TrustdInfo{Token: v.Object("trustdinfo").String("token")},
		Certs: &secrets.Certs{
			Etcd: pair("etcd"), K8s: pair("k8s"), K8sAggregator: pair("k8s_aggregator"), OS: pair("os"),
			K8sServiceAccount: &x509.PEMEncodedKey{Key: decode(certs.Object("k8s_serviceaccount"), "key")},
		},
	}, failed
}

// accessValues issues an administrator's certificate from the bundle's authority.
func accessValues(b *secrets.Bundle) (cty.Value, error) {
	input, err := generate.NewInput("", "", "", generate.WithSecretsBundle(b))
	if err != nil {
		return cty.NilVal, err
	}
	config, err := input.Talosconfig()
	if err != nil {
		return cty.NilVal, err
	}
	c := config.Contexts[config.Context]
	return plugin.Object(plugin.Values{
		"ca_certificate": plugin.Text(c.CA), "client_certificate": plugin.Text(c.Crt),
		"client_key": plugin.Text(c.Key),
	}), nil
}
