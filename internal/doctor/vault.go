package doctor

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/vault"
)

// short is less than a create may take, machines and images included.
const short = time.Hour

// vaults asks every Vault that a preflight asks: whether it can be used, by
// whom, and whether what a stage mounts there can be mounted.
func (x *examination) vaults() (all []question) {
	var asked []vault.Server
	var mounts []question
	for _, s := range x.Stages {
		for _, p := range s.Preflights {
			if p.Type.Name != vault.Preflight && p.Type.Name != vault.PreflightMount {
				continue
			}
			values, _ := p.Values(s, config.Scope{Outputs: x.Outputs}) //nolint:errcheck // what is not known yet is left out
			server := vault.ServerOf(values)
			if !slices.Contains(asked, server) {
				asked = append(asked, server)
				all = append(all, x.server(server)...)
			}
			if p.Type.Name == vault.PreflightMount {
				mounts = append(mounts, question{"vault.mounts", func(ctx context.Context) []Finding { return x.mountable(ctx, s, p, values) }})
			}
		}
	}
	all = append(all, mounts...)
	if host := x.text("vault_database_host"); host != "" {
		all = append(all, question{"vault.database", func(ctx context.Context) []Finding { return x.database(ctx, host) }})
	}
	return all
}

func (x *examination) server(v vault.Server) []question {
	return []question{
		{"vault.api", func(ctx context.Context) []Finding {
			h, err := v.Health(ctx, x.Environ)
			switch {
			case err != nil:
				return troubled(ctx, err)
			case h.Standby:
				return yellow("name the active node or the load balancer in vault_address", "%s is a standby: it has to ask the active node", v.Address)
			}
			return green("%s answers and is unsealed, version %s", v.Address, h.Version)
		}},
		{"vault.token", func(ctx context.Context) []Finding {
			if _, err := v.Health(ctx, x.Environ); err != nil {
				return unasked()
			}
			t, err := v.Token(ctx, x.Environ)
			switch {
			case err != nil:
				return troubled(ctx, err)
			case v.Role.ID != "":
				return green("the AppRole at auth/%s is let in, and is not root", v.Role.Mount)
			case t.Left == 0:
				return yellow("let it expire: vault token create -orphan -policy=castle -period=24h", "the token is not root's, and never expires")
			case t.Left < short:
				return yellow("renew it: vault token renew, or make a new one", "the token expires in %s, and a create may take longer", t.Left.Round(time.Second))
			}
			return green("the token is not root's, and is valid for %s", t.Left.Round(time.Second))
		}},
		clock("vault.clock", "Vault", func(ctx context.Context) (time.Time, error) {
			h, err := v.Health(ctx, x.Environ)
			if err != nil {
				err = errors.New("it cannot be asked, see above")
			}
			return h.Time, err
		}),
	}
}

// unasked is what every further question says if the Vault cannot be asked.
func unasked() []Finding { return grey("the Vault cannot be asked, see above") }

// troubled tells what is wrong with a Vault.
func troubled(ctx context.Context, err error) []Finding {
	if t := (*vault.Problem)(nil); errors.As(err, &t) && ctx.Err() == nil {
		return red(strings.Join(t.Fixes, "; or "), "%s: %s", t.Object, t.Reason)
	}
	return red("look at the Vault and the network", "%v", reason(ctx, err))
}

// mountable asks the preflight itself.
func (x *examination) mountable(ctx context.Context, s *config.Stage, p *config.Preflight, values gate.Values) []Finding {
	if _, err := vault.ServerOf(values).Token(ctx, x.Environ); err != nil {
		return unasked()
	}
	saw, found := x.inspect(ctx, s, p, values)
	if found != nil {
		return found
	}
	if found = inTheWay(slices.Concat(saw.Foreign, saw.Unusable)); len(found) > 0 {
		return found
	}
	if len(saw.Present) > 0 {
		return green("of this cluster: %s", strings.Join(saw.Present, ", "))
	}
	return green("%s is free for %s, and the token may write what that writes", values.String("path"), s.Name)
}

// database asks whether the database answers for which Vault makes users. It
// comes with the cluster, so it is not missed before that; and it is Vault that
// has to reach it, not this machine, so that silence is no more than a doubt.
func (x *examination) database(ctx context.Context, host string) []Finding {
	if !x.Stands {
		return grey("the database comes with the cluster")
	}
	port := "5432"
	if v := x.variable("vault_database_port"); v != cty.NilVal && v.Type() == cty.Number {
		port = v.AsBigFloat().Text('f', 0)
	}
	at := net.JoinHostPort(host, port)
	ctx, stop := context.WithTimeoutCause(ctx, patience, os.ErrDeadlineExceeded)
	defer stop()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", at)
	if err != nil {
		return yellow("look at PostgreSQL and its Service in the cluster; if only this machine has no way there, Vault itself tells: vault read database-<cluster>/creds/<role>",
			"the database at %s does not answer, so Vault cannot make users for it: %v", at, cause(ctx, err))
	}
	conn.Close() //nolint:errcheck // nothing was written
	return green("the database at %s answers", at)
}
