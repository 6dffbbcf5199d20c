// Package doctor checks the prerequisites of a create: this machine, the secret store, Proxmox or the
// machines, the Git repository, names and addresses. It changes nothing. A check is a small function that
// returns findings: green, yellow and red with a fix, or grey for what is not checked. Checks run
// concurrently, each with a timeout. The outputs of the secrets layer come first: castle evaluates them from
// the stage's own Terraform and the store's answer, in memory.
package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/doctor/finding"
	"github.com/ephemeral-castle/castle/internal/foreign"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/platform"
	"github.com/ephemeral-castle/castle/internal/secret"
	"github.com/ephemeral-castle/castle/internal/talos"
	"github.com/ephemeral-castle/castle/internal/terraform"
	"github.com/ephemeral-castle/castle/internal/tfeval"
)

// Report holds all findings.
type Report struct {
	Cluster  string            `json:"cluster,omitempty"`
	Platform string            `json:"platform,omitempty"`
	Healthy  bool              `json:"healthy"` // nothing is red
	Findings []finding.Finding `json:"findings"`
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
	Platforms      platform.Set
	Stages         []*config.Stage
	Outputs        map[string]map[string]cty.Value // of stages by layer, as far as states hold them
	Exists         bool                            // the platform's state has resources
	// Known returns the resources in a stage's state, and Started reports whether castle
	// has started to create the stage.
	Known   func(*config.Stage) ([]gate.Known, error)
	Started func(*config.Stage) bool
	// Certificates tells which credentials of the cluster expire soon.
	Certificates func(context.Context) []finding.Finding
	// Charts tells which charts their repositories do not have; nothing about those that do not answer.
	Charts  func(context.Context) []finding.Finding
	Key     string // from which the uuids of its machines may derive, as a state holds it
	Plugins string // castle's provider cache
	Masker  *secret.Masker
}

// timeout limits each check.
const timeout = 10 * time.Second

// OfMachine checks this machine only. Only rehearsals need the lab, so the check of a cluster omits it.
func OfMachine(ctx context.Context, m Machine) (*Report, error) {
	return run(ctx, &secret.Masker{}, &Report{}, append(m.checks(), finding.Check{Name: "castle-lab",
		Run: m.lab}))
}

// OfCluster checks the machine and everything that the cluster relies on.
func OfCluster(ctx context.Context, m Machine, t Target) (*Report, error) {
	t.Outputs = tfeval.Outputs(t.Stages, t.Outputs)
	r := &checkRun{machine: m, target: t}
	r.readSecrets(ctx)
	checks := append(m.checks(), finding.Check{Name: "providers", Run: r.providers})
	checks = append(checks, vaultChecks(r)...)
	if found := r.secrets.findings; len(found) > 0 {
		checks = append(checks, finding.Check{Name: r.secrets.store,
			Run: func(context.Context) []finding.Finding { return found }})
	}
	for _, host := range r.secrets.hosts {
		checks = append(checks, finding.Clock("infisical.clock", "Infisical",
			func(ctx context.Context) (time.Time, error) { return dateOf(ctx, host) }))
	}
	checks = append(checks, r.platformChecks()...)
	for _, p := range r.preflights(talos.PreflightMaintenance) {
		if p.Values.Has("endpoints") && p.Values["endpoints"].LengthInt() == 0 {
			continue // the platform makes its machines
		}
		// Before the cluster's secrets exist, no machine can be its own.
		checks = append(checks, finding.Check{Name: "machines",
			Run: func(ctx context.Context) []finding.Finding {
				return r.inspect(ctx, p, false, "each waits for its configuration")
			}})
	}
	if address := r.text("git_url"); address != "" {
		git := func(ctx context.Context) []finding.Finding { return r.repository(ctx, address) }
		checks = append(checks, finding.Check{Name: "git", Run: git})
	}
	if t.Charts != nil {
		checks = append(checks, finding.Check{Name: "charts", Run: t.Charts})
	}
	if t.Exists && t.Certificates != nil {
		checks = append(checks, finding.Check{Name: "certificates", Run: r.certificates})
	}
	checks = append(checks, finding.Check{Name: "addresses", Run: r.addresses},
		finding.Check{Name: "names", Run: r.names})
	return run(ctx, t.Masker, &Report{Cluster: t.Name, Platform: t.Platform}, checks)
}

// certificates tells which credentials of the cluster expire soon.
func (r *checkRun) certificates(ctx context.Context) []finding.Finding {
	return finding.OrGood(r.target.Certificates(ctx), "none that castle can read expires within 30 days; "+
		"castle status --certificates lists all")
}

// checkRun is one run of the checks of a cluster.
type checkRun struct {
	machine Machine
	target  Target
	secrets secrets
}

// run runs all checks concurrently and reports in their order.
func run(ctx context.Context, hide *secret.Masker, report *Report, checks []finding.Check) (*Report, error) {
	results := make([][]finding.Finding, len(checks))
	each(checks, func(i int, c finding.Check) {
		within, stop := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within %s", timeout))
		defer stop()
		results[i] = c.Run(within)
	})
	if ctx.Err() != nil {
		return nil, context.Cause(ctx) // an interrupted check has no result
	}
	report.Healthy, report.Findings = true, []finding.Finding{}
	for i, found := range results {
		for _, f := range found {
			f.Name, f.Text = checks[i].Name, foreign.OneLine(hide.Hide(f.Text))
			f.Fix = foreign.OneLine(hide.Hide(f.Fix))
			report.Healthy = report.Healthy && f.Colour != finding.Red
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

// preflights returns the preflights of the given types.
func (r *checkRun) preflights(types ...string) (all []platform.Bound) {
	for _, s := range r.target.Stages {
		for _, p := range s.Preflights {
			if slices.Contains(types, p.Type.Name) {
				// unknown values are left out
				values, _ := p.Values(s, config.Scope{Outputs: r.target.Outputs}) //nolint:errcheck
				all = append(all, platform.Bound{Stage: s, Preflight: p, Values: values, Inputs: r.inputs(s)})
			}
		}
	}
	return all
}

// platformChecks checks every datacenter that a stage makes machines in.
func (r *checkRun) platformChecks() (all []finding.Check) {
	for _, p := range r.target.Platforms {
		machines := p.MachinePreflight()
		var others []string
		for _, t := range p.Preflights() {
			if t.Name != machines {
				others = append(others, t.Name)
			}
		}
		for _, b := range r.preflights(machines) {
			all = append(all, p.Checks(platform.Subject{
				Cluster: r.target.Name, Machines: b, Others: r.preflights(others...),
				Unread: r.secrets.unread, Create: "castle create " + r.target.Name,
				Known: func() ([]gate.Known, error) { return r.target.Known(b.Stage) },
				Inspect: func(ctx context.Context, b platform.Bound, free string) []finding.Finding {
					return r.inspect(ctx, b, true, free)
				},
			})...)
		}
	}
	return all
}

// inspect runs a preflight once, and reports the objects that would stop a create. usable is set if other
// checks report what is unusable. free is the finding if nothing exists yet.
func (r *checkRun) inspect(ctx context.Context, p platform.Bound, usable bool, free string) (
	found []finding.Finding) {
	target := gate.Target{Environ: r.machine.Environ, MachineKey: r.target.Key}
	preflight, err := p.Preflight.Type.New(p.Preflight.Name(), target, p.Values)
	if err != nil {
		return finding.Obstacle("", "%v", err)
	}
	state, err := r.target.Known(p.Stage)
	if err != nil {
		return finding.Obstacle("", "%v", err)
	}
	saw, err := preflight.Inspect(ctx, state, func(string) {})
	if err != nil {
		return finding.Unchecked(finding.Reason(ctx, err))
	}
	if usable {
		saw.Unusable = nil
	}
	for _, f := range slices.Concat(saw.Foreign, saw.Unusable, saw.Unverified) {
		what := strings.TrimSuffix(f.What+"; "+f.Why, "; ")
		if obstacle := finding.Obstacle(strings.Join(f.Fixes, "; or "), "%s", what); !slices.Contains(found,
			obstacle[0]) {
			found = append(found, obstacle...)
		}
	}
	fix := fmt.Sprintf("use the state directory that records it (--state-dir); or import it: castle create "+
		"%s/%s --adopt", r.target.Name, r.target.Platform)
	for _, own := range saw.Ours {
		if !r.target.Started(p.Stage) {
			found = append(found,
				finding.Obstacle(fix, "%s is the cluster's own, but no state here has it",
					own.Import.What)...)
		}
	}
	if len(saw.Present) > 0 {
		free = "of this cluster: " + strings.Join(saw.Present, ", ")
	}
	return finding.OrGood(found, "%s", free)
}
