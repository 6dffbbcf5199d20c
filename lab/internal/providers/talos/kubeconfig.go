package talos

import (
	"context"
	"fmt"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/zclconf/go-cty/cty"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/ephemeral-castle/castle/lab/internal/providers/plugin"
)

func kubeconfig() plugin.Resource {
	renewal := eitherText()
	renewal.Default = cty.StringVal("720h")
	raw, parsed := secret(keptID()), object(keptID(), map[string]plugin.Attribute{
		"host": computedText(), "ca_certificate": computedText(), "client_certificate": computedText(),
		"client_key": secret(computedText()),
	})
	return plugin.Resource{
		Version: 1,
		Schema: plugin.Block{Attributes: map[string]plugin.Attribute{
			"id":                              keptID(),
			"node":                            requiredText(),
			"endpoint":                        eitherText(),
			"client_configuration":            access(requiredText()),
			"kubeconfig_raw":                  raw,
			"kubernetes_client_configuration": parsed,
			"certificate_renewal_duration":    renewal,
			"timeouts":                        timeouts("create", "update"),
		}},
		Plan: planKubeconfig,
		Create: func(ctx context.Context, c plugin.Change) (plugin.Values, error) {
			return fetchKubeconfig(ctx, c, "create")
		},
		Update: func(ctx context.Context, c plugin.Change) (plugin.Values, error) {
			if c.Planned.Known("kubeconfig_raw") {
				return plugin.Values{}, nil
			}
			return fetchKubeconfig(ctx, c, "update")
		},
	}
}

// planKubeconfig plans a new kubeconfig when the certificate in the old one is about to expire.
func planKubeconfig(_ context.Context, p *plugin.Plan) error {
	planEndpoint(p)
	if p.Change.Prior == nil || !p.Change.Planned.Known("certificate_renewal_duration") {
		return nil
	}
	before, err := time.ParseDuration(p.Change.Planned.String("certificate_renewal_duration"))
	if err != nil {
		return problem("failed to parse certificate renewal duration in plan", err)
	}
	ends, err := notAfter(p.Change.Prior.Object("kubernetes_client_configuration").
		String("client_certificate"))
	if err != nil {
		return problem("failed to decode kubernetes client certificate", err)
	}
	if ends.Before(time.Now().Add(before)) {
		p.SetUnknown("kubeconfig_raw", "kubernetes_client_configuration")
	}
	return nil
}

func fetchKubeconfig(ctx context.Context, c plugin.Change, operation string) (plugin.Values, error) {
	limit, err := timeout(c.Planned, operation)
	if err != nil {
		return nil, err
	}
	var raw []byte
	err = call(ctx, c.Planned, limit, func(ctx context.Context, from *client.Client) (err error) {
		raw, err = from.Kubeconfig(ctx)
		return err
	})
	if err != nil {
		return nil, problem("failed to retrieve kubeconfig", err)
	}
	config, err := clientcmd.Load(raw)
	if err != nil {
		return nil, problem("failed to parse kubeconfig", err)
	}
	current := config.Contexts[config.CurrentContext]
	if current == nil || config.Clusters[current.Cluster] == nil ||
		config.AuthInfos[current.AuthInfo] == nil {
		return nil,
			problem("failed to parse kubeconfig",
				fmt.Errorf("context %q is not complete", config.CurrentContext))
	}
	cluster, user := config.Clusters[current.Cluster], config.AuthInfos[current.AuthInfo]
	return plugin.Values{
		"id":             cty.StringVal(current.Cluster),
		"kubeconfig_raw": cty.StringVal(string(raw)),
		"kubernetes_client_configuration": plugin.Object(plugin.Values{
			"host":               plugin.Text(cluster.Server),
			"ca_certificate":     encoded(cluster.CertificateAuthorityData),
			"client_certificate": encoded(user.ClientCertificateData),
			"client_key":         encoded(user.ClientKeyData),
		}),
	}, nil
}
