package expiry

import (
	"context"
	"time"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/doctor/finding"
	"github.com/ephemeral-castle/castle/internal/kube"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/run/recovery"
	"github.com/ephemeral-castle/castle/internal/secretstore"
	"github.com/ephemeral-castle/castle/internal/secretstore/infisical"
	"github.com/ephemeral-castle/castle/internal/secretstore/vault"
)

// or returns the item, or with an error the reason why it was not checked.
func (i Item) or(ctx context.Context, err error) Item {
	if err != nil {
		i.Reason = finding.Reason(ctx, err).Error()
	}
	return i
}

// webhooks lists the authorities by which the API server trusts webhooks. The certificates that they have
// signed are not in the API.
func webhooks(ctx context.Context, r *run.Run) (all []Item) {
	target := r.Outputs.Target()
	if target.Kubeconfig == nil {
		return nil
	}
	bundles, err := kube.WebhookBundles(ctx, target)
	if err != nil {
		return []Item{Item{Name: "caBundles of the webhooks"}.or(ctx, err)}
	}
	for _, b := range bundles {
		all = append(all, ofCertificates(Item{Name: "caBundle of " + b.Object,
			Fix: "the operator behind " + b.Server + " renews it; read its log"}, b.CA))
	}
	return all
}

// platformTokens lists the tokens of the datacenters that the machines are in.
func platformTokens(ctx context.Context, r *run.Run) (all []Item) {
	for _, s := range r.Cluster.Config.Stages {
		for _, p := range s.Preflights {
			of := cluster.Platforms().OfMachines(p.Type.Name)
			if of == nil {
				continue
			}
			i := Item{Name: "token of " + of.Name()}
			datacenter, err := recovery.Datacenter(r, s)
			if err == nil {
				i.Expires, i.Fix, err = datacenter.TokenExpiry(ctx)
			}
			all = append(all, i.or(ctx, err))
		}
	}
	return all
}

// secretStores lists what castle logs in with to Infisical and to every Vault.
func secretStores(ctx context.Context, r *run.Run) (all []Item) {
	environ, stages := r.Cluster.Options.Environ, r.Cluster.Config.Stages
	if collection, err := secretstore.Of(stages); err == nil {
		if folder, is := collection.Store.(infisical.Folder); is {
			i := Item{Name: "client secret of Infisical's identity",
				Fix: "add one in Infisical, and set INFISICAL_UNIVERSAL_AUTH_CLIENT_SECRET"}
			i.Issued, i.Expires, err = folder.Identity(ctx, environ)
			all = append(all, i.or(ctx, err))
		}
	}
	seen := map[vault.Server]bool{}
	for _, s := range stages {
		for _, p := range s.Preflights {
			if p.Type.Name != vault.Preflight && p.Type.Name != vault.PreflightMount {
				continue
			}
			values, diags := p.Values(s, r.Outputs.Scope(s))
			if server := vault.ServerOf(values); !diags.HasErrors() && !seen[server] {
				seen[server] = true
				all = append(all, ofVault(ctx, server, environ))
			}
		}
	}
	return all
}

func ofVault(ctx context.Context, server vault.Server, environ []string) Item {
	if server.Role.ID != "" {
		return Item{Name: "SecretID of Vault's AppRole", Fix: "create one, and set vault_role_secret_id",
			Reason: "castle's policy does not let it be looked up"}
	}
	i := Item{Name: "token of Vault", Fix: "vault token renew, or create one and set VAULT_TOKEN"}
	token, err := server.Token(ctx, environ)
	if token.Left > 0 {
		i.Expires = time.Now().Add(token.Left)
		i.Issued = i.Expires.Add(-max(token.Life, token.Left))
	}
	return i.or(ctx, err)
}
