package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/ephemeral-castle/castle/internal/doctor/finding"
	"github.com/ephemeral-castle/castle/internal/secretstore/vault"
	"github.com/ephemeral-castle/castle/internal/tfeval"
)

// createTime is a bound on the duration of a create, machines and images included.
const createTime = time.Hour

// vaultChecks checks every Vault that a preflight uses: whether it answers, the token,
// and the mounts of the stages.
func vaultChecks(r *checkRun) (all []finding.Check) {
	var servers []vault.Server
	var mounts []finding.Check
	for _, p := range r.preflights(vault.Preflight, vault.PreflightMount) {
		server := vault.ServerOf(p.Values)
		if !slices.Contains(servers, server) {
			servers = append(servers, server)
			all = append(all, serverChecks(r.machine.Environ, server)...)
		}
		if p.Preflight.Type.Name == vault.PreflightMount {
			mounts = append(mounts, finding.Check{Name: "vault.mounts",
				Run: func(ctx context.Context) []finding.Finding {
					if _, err := server.Token(ctx, r.machine.Environ); err != nil {
						return vaultUnavailable()
					}
					free := fmt.Sprintf("%s is free for %s, and the token may write to it",
						p.Values.String("path"), p.Stage.Name)
					return r.inspect(ctx, p, false, free)
				}})
		}
	}
	all = append(all, mounts...)
	if host := r.text("vault_database_host"); host != "" {
		all = append(all, finding.Check{Name: "vault.database",
			Run: func(ctx context.Context) []finding.Finding { return r.database(ctx, host) }})
	}
	return all
}

func serverChecks(environ []string, v vault.Server) []finding.Check {
	return []finding.Check{
		{Name: "vault.api", Run: func(ctx context.Context) []finding.Finding {
			h, err := v.Health(ctx, environ)
			switch {
			case err != nil:
				return vaultProblem(ctx, err)
			case h.Standby:
				return finding.Warning("set vault_address to the active node or the load balancer",
					"%s is a standby: it forwards requests to the active node", v.Address)
			}
			return finding.Good("%s answers and is unsealed, version %s", v.Address, h.Version)
		}},
		{Name: "vault.token", Run: func(ctx context.Context) []finding.Finding {
			if _, err := v.Health(ctx, environ); err != nil {
				return vaultUnavailable()
			}
			left, err := v.Token(ctx, environ)
			switch {
			case err != nil:
				return vaultProblem(ctx, err)
			case v.Role.ID != "":
				return finding.Good("the AppRole at auth/%s can log in, and is not root", v.Role.Mount)
			case left == 0:
				return finding.Warning(
					"use one that expires: vault token create -orphan -policy=castle -period=24h",
					"the token is not root's, and never expires")
			case left < createTime:
				return finding.Warning("renew it: vault token renew, or create a new one",
					"the token expires in %s, and a create may take longer", left.Round(time.Second))
			}
			return finding.Good("the token is not root's, and is valid for %s", left.Round(time.Second))
		}},
		finding.Clock("vault.clock", "Vault", func(ctx context.Context) (time.Time, error) {
			h, err := v.Health(ctx, environ)
			if err != nil {
				err = errors.New("it is not available, see above")
			}
			return h.Time, err
		}),
	}
}

// vaultUnavailable is the finding of a check that requires a Vault that another check reports.
func vaultUnavailable() []finding.Finding {
	return finding.Unchecked("the Vault is not available, see above")
}

func vaultProblem(ctx context.Context, err error) []finding.Finding {
	if p := (*vault.Problem)(nil); errors.As(err, &p) && ctx.Err() == nil {
		return finding.Obstacle(strings.Join(p.Fixes, "; or "), "%s: %s", p.Object, p.Reason)
	}
	return finding.Obstacle("check the Vault and the network", "%v", finding.Reason(ctx, err))
}

// database checks that the database answers for which Vault creates users. It is created
// with the cluster; Vault must reach it, not this machine, so a failure is a warning.
func (r *checkRun) database(ctx context.Context, host string) []finding.Finding {
	if !r.target.Exists {
		return finding.Unchecked("the database is created with the cluster")
	}
	port := cmp.Or(tfeval.Printed(r.variable("vault_database_port")), "5432")
	if err := dial(ctx, host, port); err != nil {
		return finding.Warning(
			"check PostgreSQL and its Service in the cluster; if only this machine cannot reach "+
				"it, ask Vault: vault read database-<cluster>/creds/<role>",
			"the database at %s does not answer, so Vault cannot create users for it: %v",
			net.JoinHostPort(host, port), finding.Reason(ctx, err))
	}
	return finding.Good("the database at %s answers", net.JoinHostPort(host, port))
}
