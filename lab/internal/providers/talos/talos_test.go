package talos

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/lab/internal/providers/plugin"
	"github.com/ephemeral-castle/castle/lab/internal/providers/plugin/plugintest"
)

func text(s string) cty.Value { return cty.StringVal(s) }

// since returns the secrets of a cluster that is as old as age.
func since(t *testing.T, age time.Duration) plugin.Values {
	t.Helper()
	bundle, err := secrets.NewBundle(secrets.NewFixedClock(time.Now().Add(-age)), config.TalosVersion1_12)
	if err != nil {
		t.Fatal(err)
	}
	v, err := describeBundle(bundle)
	if err != nil {
		t.Fatal(err)
	}
	v["talos_version"] = text("v1.12")
	return v
}

func secretsResource(t *testing.T, state plugin.Values) *plugintest.Resource {
	t.Helper()
	r := plugintest.New(t, New(), "talos_machine_secrets")
	r.State = cty.ObjectVal(state)
	return r
}

func TestSecretsStayButForTheCertificateThatEnds(t *testing.T) {
	for name, age := range map[string]time.Duration{"fresh": time.Hour,
		"about to end": 350 * 24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			before := since(t, age)
			r := secretsResource(t, before)
			p, diagnostics := r.Plan(plugin.Values{"talos_version": text("v1.12")})
			if len(diagnostics) > 0 || p.Changes() != (name != "fresh") {
				t.Fatalf("changes %t, %v", p.Changes(), diagnostics)
			}
			r.ApplyContext(t.Context(), p)
			if !r.State.GetAttr("machine_secrets").RawEquals(before["machine_secrets"]) {
				t.Error("the secrets are others")
			}
			if same := r.State.GetAttr("client_configuration").
				RawEquals(before["client_configuration"]); same != (name == "fresh") {
				t.Errorf("the certificate is the same: %t", same)
			}
		})
	}
}

func TestOlderSecretsServeANewerTalosButNotTheReverse(t *testing.T) {
	r := secretsResource(t, since(t, time.Hour))
	if p, _ := r.Plan(plugin.Values{"talos_version": text("v1.11.0")}); len(p.Replaces) != 1 {
		t.Errorf("a downgrade replaces %v", p.Replaces)
	}
	before := r.State.GetAttr("machine_secrets")
	if diagnostics := r.Apply(plugin.Values{"talos_version": text("v1.13.0")}); len(diagnostics) > 0 {
		t.Fatal(diagnostics[0].Summary)
	}
	if !r.State.GetAttr("machine_secrets").RawEquals(before) {
		t.Error("an upgrade made other secrets")
	}
}

// accessFor is a client_configuration with a certificate that ends after left.
func accessFor(t *testing.T, left time.Duration) cty.Value {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(left)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		t.Fatal(err)
	}
	certificate := encoded(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	return cty.ObjectVal(map[string]cty.Value{"ca_certificate": certificate,
		"client_certificate": certificate, "client_key": encoded([]byte("a key"))})
}

const machineConfig = "version: v1alpha1\nmachine:\n  type: worker\ncluster: {}\n"

func applyConfig(t *testing.T) plugin.Values {
	t.Helper()
	return plugin.Values{"node": text("192.0.2.11"), "machine_configuration_input": text(machineConfig),
		"client_configuration": accessFor(t, time.Hour)}
}

func TestThePlanShowsThePatchedConfiguration(t *testing.T) {
	r := plugintest.New(t, New(), "talos_machine_configuration_apply")
	c := applyConfig(t)
	c["config_patches"] = cty.ListVal([]cty.Value{text("machine: { network: { hostname: cp-01 } }")})
	p, diagnostics := r.Plan(c)
	if len(diagnostics) > 0 {
		t.Fatal(diagnostics[0].Detail)
	}
	v := p.Planned
	if !v.GetAttr("endpoint").RawEquals(text("192.0.2.11")) ||
		!v.GetAttr("resolved_apply_mode").RawEquals(text("auto")) {
		t.Errorf("endpoint %#v, mode %#v", v.GetAttr("endpoint"), v.GetAttr("resolved_apply_mode"))
	}
	if got := v.GetAttr("machine_configuration"); !got.IsKnown() ||
		!strings.Contains(got.AsString(), "hostname: cp-01") {
		t.Errorf("machine_configuration %#v", got)
	}
	c["config_patches"] = cty.ListVal([]cty.Value{cty.UnknownVal(cty.String)})
	if p, _ = r.Plan(c); p.Planned.GetAttr("machine_configuration").IsKnown() {
		t.Error("the configuration is known before its patch is")
	}
	c["config_patches"] = cty.ListVal([]cty.Value{text("machine: [")})
	if _, diagnostics = r.Plan(c); len(diagnostics) != 1 ||
		diagnostics[0].Summary != "Error loading config patches" {
		t.Errorf("a broken patch: %v", diagnostics)
	}
}

func TestAKubeconfigIsFetchedAgainBeforeItsCertificateEnds(t *testing.T) {
	for name, left := range map[string]time.Duration{"fresh": 60 * 24 * time.Hour,
		"about to end": 15 * 24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			access := accessFor(t, left).AsValueMap()
			r := plugintest.New(t, New(), "talos_cluster_kubeconfig")
			r.State = cty.ObjectVal(map[string]cty.Value{
				"id": text("blue"), "node": text("192.0.2.11"), "endpoint": text("192.0.2.11"),
				"client_configuration": cty.ObjectVal(access),
				"kubeconfig_raw":       text("apiVersion: v1"), "certificate_renewal_duration": text("720h"),
				"timeouts": cty.NullVal(cty.Object(map[string]cty.Type{"create": cty.String,
					"update": cty.String})),
				"kubernetes_client_configuration": cty.ObjectVal(
					map[string]cty.Value{"host": text("https://192.0.2.10:6443"),
						"ca_certificate":     access["ca_certificate"],
						"client_certificate": access["client_certificate"],
						"client_key":         access["client_key"]}),
			})
			p, diagnostics := r.Plan(plugin.Values{"node": text("192.0.2.11"),
				"client_configuration": cty.ObjectVal(access)})
			if len(diagnostics) > 0 || p.Planned.GetAttr("kubeconfig_raw").IsKnown() != (name == "fresh") ||
				p.Changes() != (name != "fresh") {
				t.Errorf("changes %t, %v", p.Changes(), diagnostics)
			}
		})
	}
}

func TestCallsAreRepeatedUntilTheTimeIsOver(t *testing.T) {
	for name, limit := range map[string]time.Duration{"until it works": time.Minute,
		"until the timeout": time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				attempts := 0
				err := repeat(t.Context(), limit, func(context.Context) error {
					if attempts++; attempts < 4 {
						return errors.New("bootstrap is not available yet")
					}
					return nil
				})
				if worked := err == nil; worked != (limit == time.Minute) ||
					(err != nil && err.Error() != "bootstrap is not available yet") {
					t.Errorf("after %d attempts: %v", attempts, err)
				}
			})
		})
	}
}
