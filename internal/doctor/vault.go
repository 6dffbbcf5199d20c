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

	"github.com/ephemeral-castle/castle/internal/secretstore/vault"
	"github.com/ephemeral-castle/castle/internal/tfeval"
)

// createTime is a bound on the duration of a create, machines and images included.
const createTime = time.Hour

// vaultChecks checks every Vault that a preflight uses: whether it answers, the token,
// and the mounts of the stages.
func vaultChecks(r *checkRun) (all []check) {
	var servers []vault.Server
	var mounts []check
	for _, p := range r.preflights(vault.Preflight, vault.PreflightMount) {
		server := vault.ServerOf(p.values)
		if !slices.Contains(servers, server) {
			servers = append(servers, server)
			all = append(all, serverChecks(r.machine.Environ, server)...)
		}
		if p.preflight.Type.Name == vault.PreflightMount {
			mounts = append(mounts, check{"vault.mounts", func(ctx context.Context) []Finding {
				if _, err := server.Token(ctx, r.machine.Environ); err != nil {
					return vaultUnavailable()
				}
				free := fmt.Sprintf("%s is free for %s, and the token may write to it",
					p.values.String("path"), p.stage.Name)
				return r.inspect(ctx, p, free)
			}})
		}
	}
	all = append(all, mounts...)
	if host := r.text("vault_database_host"); host != "" {
		all = append(all, check{"vault.database",
			func(ctx context.Context) []Finding { return r.database(ctx, host) }})
	}
	return all
}

func serverChecks(environ []string, v vault.Server) []check {
	return []check{
		{"vault.api", func(ctx context.Context) []Finding {
			h, err := v.Health(ctx, environ)
			switch {
			case err != nil:
				return vaultProblem(ctx, err)
			case h.Standby:
				return yellow("set vault_address to the active node or the load balancer",
					"%s is a standby: it forwards requests to the active node", v.Address)
			}
			return green("%s answers and is unsealed, version %s", v.Address, h.Version)
		}},
		{"vault.token", func(ctx context.Context) []Finding {
			if _, err := v.Health(ctx, environ); err != nil {
				return vaultUnavailable()
			}
			left, err := v.Token(ctx, environ)
			switch {
			case err != nil:
				return vaultProblem(ctx, err)
			case v.Role.ID != "":
				return green("the AppRole at auth/%s can log in, and is not root", v.Role.Mount)
			case left == 0:
				return yellow("use one that expires: vault token create -orphan -policy=castle -period=24h",
					"the token is not root's, and never expires")
			case left < createTime:
				return yellow("renew it: vault token renew, or create a new one",
					"the token expires in %s, and a create may take longer", left.Round(time.Second))
			}
			return green("the token is not root's, and is valid for %s", left.Round(time.Second))
		}},
		clock("vault.clock", "Vault", func(ctx context.Context) (time.Time, error) {
			h, err := v.Health(ctx, environ)
			if err != nil {
				err = errors.New("it is not available, see above")
			}
			return h.Time, err
		}),
	}
}

// vaultUnavailable is the finding of a check that requires a Vault that another check reports.
func vaultUnavailable() []Finding { return grey("the Vault is not available, see above") }

func vaultProblem(ctx context.Context, err error) []Finding {
	if p := (*vault.Problem)(nil); errors.As(err, &p) && ctx.Err() == nil {
		return red(strings.Join(p.Fixes, "; or "), "%s: %s", p.Object, p.Reason)
	}
	return red("check the Vault and the network", "%v", reason(ctx, err))
}

// database checks that the database answers for which Vault creates users. It is created
// with the cluster; Vault must reach it, not this machine, so a failure is a warning.
func (r *checkRun) database(ctx context.Context, host string) []Finding {
	if !r.target.Exists {
		return grey("the database is created with the cluster")
	}
	port := cmp.Or(tfeval.Printed(r.variable("vault_database_port")), "5432")
	if err := dial(ctx, host, port); err != nil {
		return yellow("check PostgreSQL and its Service in the cluster; if only this machine cannot reach "+
			"it, ask Vault: vault read database-<cluster>/creds/<role>",
			"the database at %s does not answer, so Vault cannot create users for it: %v",
			net.JoinHostPort(host, port), reason(ctx, err))
	}
	return green("the database at %s answers", net.JoinHostPort(host, port))
}
