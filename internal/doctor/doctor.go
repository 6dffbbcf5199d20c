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
	"strings"
	"sync"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/secret"
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
	Fix    string `json:"way,omitempty"`
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
	Terraform func(context.Context) (terraform.Candidate, error)
	Resolve   func(ctx context.Context, host string) ([]string, error) // a host name's addresses
	// path of castle-lab, empty if it is not found
	Lab string
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
	checks = append(checks, r.talosMachines()...)
	if address := r.text("git_url"); address != "" {
		checks = append(checks, check{"git", func(ctx context.Context) []Finding {
			return r.repository(ctx,
				address)
		}})
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
	var all sync.WaitGroup
	for i, c := range checks {
		all.Go(func() {
			within, stop := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within %s", timeout))
			defer stop()
			results[i] = c.run(within)
		})
	}
	all.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx) // an interrupted check has no result
	}
	report.Healthy, report.Findings = true, []Finding{}
	for i, found := range results {
		for _, f := range found {
			f.Name = strings.TrimSuffix(checks[i].name+"."+f.Name, ".")
			f.Text, f.Fix = oneLine(hide.Hide(f.Text)), oneLine(hide.Hide(f.Fix))
			report.Healthy = report.Healthy && f.Colour != Red
			report.Findings = append(report.Findings, f)
		}
	}
	return report, nil
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

func green(format string, args ...any) []Finding {
	return []Finding{{Colour: Green, Text: fmt.Sprintf(format, args...)}}
}

func yellow(fix, format string, args ...any) []Finding {
	return []Finding{{Colour: Yellow, Text: fmt.Sprintf(format, args...), Fix: fix}}
}

func red(fix, format string, args ...any) []Finding {
	return []Finding{{Colour: Red, Text: fmt.Sprintf(format, args...), Fix: fix}}
}

func grey(format string, args ...any) []Finding {
	return []Finding{{Colour: Grey, Text: "not checked: " + fmt.Sprintf(format, args...)}}
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
	var long *url.Error
	if errors.As(err, &long) {
		err = long.Err
	}
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return context.Cause(ctx)
	}
	return err
}
