// Package doctor checks the prerequisites of a create: this machine, the secret store, Proxmox or the
// machines, the Git repository, names and addresses. It changes nothing.
//
// A check is a small function with a name that returns findings. Green passes, yellow is a warning, red
// would stop a create, and grey means not checked, with the reason. Yellow and red findings carry a fix.
// Checks run concurrently, each with a timeout, and are reported in the order of the list. The outputs of
// the secrets layer come first, because other checks need them. castle evaluates them from the stage's own
// Terraform, with the store's answer in place of the data source, and keeps them in memory.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/foreign"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/proxmox"
	"github.com/ephemeral-castle/castle/internal/secret"
	"github.com/ephemeral-castle/castle/internal/talos"
	"github.com/ephemeral-castle/castle/internal/terraform"
)

// Colour is the severity of a finding.
type Colour string

// The colours. Grey was not checked.
const (
	Green  Colour = "green"
	Yellow Colour = "yellow"
	Red    Colour = "red"
	Grey   Colour = "grey"
)

// Finding is the result of a check.
type Finding struct {
	Name   string `json:"name"` // "proxmox.token"
	Colour Colour `json:"colour"`
	Text   string `json:"text"`
	Fix    string `json:"fix,omitempty"`
}

// Report holds all findings.
type Report struct {
	Cluster  string    `json:"cluster,omitempty"`
	Platform string    `json:"platform,omitempty"`
	Healthy  bool      `json:"healthy"` // nothing is red
	Findings []Finding `json:"findings"`
}

// Machine is where castle runs.
type Machine struct {
	Environ   []string
	StateRoot string
	Store     *Store // of the states; nil: they are in StateRoot alone
	Lab       string // path of castle-lab; empty if it is not found
	Terraform func(context.Context) (terraform.Candidate, error)
	Resolve   func(ctx context.Context, host string) ([]string, error) // a host name's addresses
}

// Target is the cluster that is checked.
type Target struct {
	Name, Platform string
	Stages         []*config.Stage
	Outputs        map[string]map[string]cty.Value // of stages by layer, as far as states hold them
	Exists         bool                            // the platform's state has resources
	// Known returns the resources in a stage's state, and Started reports whether castle
	// has started to create the stage.
	Known   func(*config.Stage) ([]gate.Known, error)
	Started func(*config.Stage) bool
	Key     string // from which the uuids of its machines may derive, as a state holds it
	Plugins string // castle's provider cache
	Masker  *secret.Masker
}

// timeout limits each check.
const timeout = 10 * time.Second

// check is a check, or a few that depend on each other.
type check struct {
	name string
	run  func(context.Context) []Finding
}

// OfMachine checks this machine only. Only rehearsals need the lab, so the check of a cluster omits it.
func OfMachine(ctx context.Context, m Machine) (*Report, error) {
	return run(ctx, &secret.Masker{}, &Report{}, append(m.checks(), check{"castle-lab", m.lab}))
}

// OfCluster checks the machine and everything that the cluster relies on.
func OfCluster(ctx context.Context, m Machine, t Target) (*Report, error) {
	r := &checkRun{machine: m, target: t}
	r.readSecrets(ctx)
	checks := append(m.checks(), check{"providers", r.providers})
	checks = append(checks, vaultChecks(r)...)
	if found := r.secrets.findings; len(found) > 0 {
		checks = append(checks, check{r.secrets.store, func(context.Context) []Finding { return found }})
	}
	for _, host := range r.secrets.hosts {
		checks = append(checks, clock("infisical.clock", "Infisical",
			func(ctx context.Context) (time.Time, error) { return dateOf(ctx, host) }))
	}
	checks = append(checks, proxmoxChecks(r)...)
	for _, p := range r.preflights(talos.PreflightMaintenance) {
		// Before the cluster's secrets exist, no machine can be its own.
		checks = append(checks, check{"machines", func(ctx context.Context) []Finding {
			return r.inspect(ctx, p, "each waits for its configuration")
		}})
	}
	if address := r.text("git_url"); address != "" {
		checks = append(checks,
			check{"git", func(ctx context.Context) []Finding { return r.repository(ctx, address) }})
	}
	checks = append(checks, check{"addresses", r.addresses}, check{"names", r.names})
	return run(ctx, t.Masker, &Report{Cluster: t.Name, Platform: t.Platform}, checks)
}

// checkRun is one run of the checks of a cluster.
type checkRun struct {
	machine Machine
	target  Target
	secrets secrets
}

// run runs all checks concurrently and reports in their order.
func run(ctx context.Context, hide *secret.Masker, report *Report, checks []check) (*Report, error) {
	results := make([][]Finding, len(checks))
	each(checks, func(i int, c check) {
		within, stop := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within %s", timeout))
		defer stop()
		results[i] = c.run(within)
	})
	if ctx.Err() != nil {
		return nil, context.Cause(ctx) // an interrupted check has no result
	}
	report.Healthy, report.Findings = true, []Finding{}
	for i, found := range results {
		for _, f := range found {
			f.Name, f.Text = checks[i].name, foreign.OneLine(hide.Hide(f.Text))
			f.Fix = foreign.OneLine(hide.Hide(f.Fix))
			report.Healthy = report.Healthy && f.Colour != Red
			report.Findings = append(report.Findings, f)
		}
	}
	return report, nil
}

// each calls do for all items concurrently, and waits.
func each[T any](items []T, do func(int, T)) {
	var all sync.WaitGroup
	for i, item := range items {
		all.Go(func() { do(i, item) })
	}
	all.Wait()
}

func green(format string, args ...any) []Finding {
	return []Finding{{Colour: Green, Text: fmt.Sprintf(format, args...)}}
}

func yellow(fix, format string, args ...any) []Finding {
	return []Finding{{Colour: Yellow, Text: fmt.Sprintf(format, args...), Fix: fix}}
}

func red(fix, format string, args ...any) []Finding {
	return []Finding{{Colour: Red, Text: fmt.Sprintf(format, args...), Fix: fix}}
}

// grey is a check that could not be made, since a request failed or something is not known.
func grey(why any) []Finding {
	return []Finding{{Colour: Grey, Text: fmt.Sprintf("not checked: %v", why)}}
}

// orGreen returns found, or a green finding if there is none.
func orGreen(found []Finding, format string, args ...any) []Finding {
	if len(found) > 0 {
		return found
	}
	return green(format, args...)
}

// reason is why a request failed, without its address; the timeout if that was the cause.
func reason(ctx context.Context, err error) error {
	if long, ok := errors.AsType[*url.Error](err); ok {
		err = long.Err
	}
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return context.Cause(ctx)
	}
	return err
}

// boundPreflight is a stage's preflight with those of its values that are known.
type boundPreflight struct {
	stage     *config.Stage
	preflight *config.Preflight
	values    gate.Values
}

// preflights returns the preflights of the given types.
func (r *checkRun) preflights(types ...string) (all []boundPreflight) {
	for _, s := range r.target.Stages {
		for _, p := range s.Preflights {
			if slices.Contains(types, p.Type.Name) {
				// unknown values are left out
				values, _ := p.Values(s, config.Scope{Outputs: r.target.Outputs}) //nolint:errcheck
				all = append(all, boundPreflight{s, p, values})
			}
		}
	}
	return all
}

// inspect runs a preflight once, and reports the objects that would stop a create. free is the finding if
// nothing exists yet.
func (r *checkRun) inspect(ctx context.Context, p boundPreflight, free string) (found []Finding) {
	target := gate.Target{Environ: r.machine.Environ, MachineKey: r.target.Key}
	preflight, err := p.preflight.Type.New(p.preflight.Name(), target, p.values)
	if err != nil {
		return red("", "%v", err)
	}
	state, err := r.target.Known(p.stage)
	if err != nil {
		return red("", "%v", err)
	}
	saw, err := preflight.Inspect(ctx, state, func(string) {})
	if err != nil {
		return grey(reason(ctx, err))
	}
	if p.preflight.Type.Name == proxmox.PreflightVMIDs {
		saw.Unusable = nil // proxmox.nodes and proxmox.pool report them
	}
	for _, f := range slices.Concat(saw.Foreign, saw.Unusable, saw.Unverified) {
		what := strings.TrimSuffix(f.What+"; "+f.Why, "; ")
		if obstacle := red(strings.Join(f.Fixes, "; or "), "%s", what); !slices.Contains(found, obstacle[0]) {
			found = append(found, obstacle...)
		}
	}
	fix := fmt.Sprintf("use the state directory that records it (--state-dir); or import it: castle create "+
		"%s/%s --adopt", r.target.Name, r.target.Platform)
	for _, own := range saw.Ours {
		if !r.target.Started(p.stage) {
			found = append(found,
				red(fix, "%s is the cluster's own, but no state here has it", own.Import.What)...)
		}
	}
	if len(saw.Present) > 0 {
		free = "of this cluster: " + strings.Join(saw.Present, ", ")
	}
	return orGreen(found, "%s", free)
}
