// Package doctor asks everything around a cluster that a create will rely on,
// before anything is created: this machine, the secrets' keeper, the datacenter,
// the repository, names and addresses. It changes nothing anywhere.
//
// How it thinks: a check is a small function with a name that returns findings:
// green, yellow for a doubt, red for what would stop a create, and grey for what
// could not be asked, with the reason. Red and yellow say the way out. Checks
// run side by side, each with a bound, and are told in the order in which they
// are listed. What a check needs of the secrets is asked first and lives in
// memory only: what a stage would say is evaluated from its own Terraform, with
// what the keeper of the secrets answers in the place of its data source.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/secret"
	"github.com/ephemeral-castle/castle/internal/terraform"
)

// Colour is how bad a finding is.
type Colour string

// The colours. Grey is what was not asked.
const (
	Green  Colour = "green"
	Yellow Colour = "yellow"
	Red    Colour = "red"
	Grey   Colour = "grey"
)

// Finding is what a check has found.
type Finding struct {
	Name   string `json:"name"` // "proxmox.token"
	Colour Colour `json:"colour"`
	Text   string `json:"text"`
	Way    string `json:"way,omitempty"` // out of it
}

// Report is all that was found.
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
	// Resolve finds the addresses of a host name.
	Resolve func(ctx context.Context, host string) ([]string, error)
	// Lab is where castle-lab is, empty if it is not found; it is asked for only
	// where no cluster is named, since only rehearsals need it.
	Lab string
}

// Patient is the cluster that is looked at.
type Patient struct {
	Name, Platform string
	Stages         []*config.Stage
	// Outputs are what stages have said, by layer, as far as states tell.
	Outputs map[string]map[string]cty.Value
	Stands  bool // its platform has a state with resources
	// Known are the resources in a stage's state, and Began whether castle has
	// begun to make the stage here.
	Known func(*config.Stage) ([]gate.Known, error)
	Began func(*config.Stage) bool
	// Plugins is castle's own cache of providers.
	Plugins string
	Masker  *secret.Masker
}

// bound ends a check that gets no answer.
const bound = 10 * time.Second

// question is one check, or a few that follow from one another.
type question struct {
	name string
	ask  func(context.Context) []Finding
}

// OfMachine looks at the machine alone.
func OfMachine(ctx context.Context, m Machine) (*Report, error) {
	return run(ctx, &secret.Masker{}, &Report{}, append(m.questions(), question{"castle-lab", m.lab}))
}

// OfCluster looks at the machine and at everything that the cluster relies on.
func OfCluster(ctx context.Context, m Machine, p Patient) (*Report, error) {
	x := &examination{Machine: m, Patient: p}
	heard := x.hear(ctx)
	questions := append(m.questions(), question{"providers", x.providers})
	questions = append(questions, x.vaults()...)
	if len(heard.findings) > 0 {
		questions = append(questions, question{heard.keeper, func(context.Context) []Finding { return heard.findings }})
	}
	questions = append(questions, heard.clocks()...)
	questions = append(questions, x.proxmox(heard)...)
	questions = append(questions, x.machines()...)
	questions = append(questions, x.repository(heard)...)
	questions = append(questions, question{"addresses", x.addresses}, question{"names", x.names})
	return run(ctx, p.Masker, &Report{Cluster: p.Name, Platform: p.Platform}, questions)
}

// examination is one look at a cluster.
type examination struct {
	Machine
	Patient
}

// run asks all checks side by side and reports in their order.
func run(ctx context.Context, hide *secret.Masker, report *Report, questions []question) (*Report, error) {
	answers := make([][]Finding, len(questions))
	var all sync.WaitGroup
	for i, c := range questions {
		all.Go(func() {
			within, stop := context.WithTimeoutCause(ctx, bound, fmt.Errorf("no answer within %s", bound))
			defer stop()
			answers[i] = c.ask(within)
		})
	}
	all.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx) // a question that was stopped is no answer
	}
	report.Healthy, report.Findings = true, []Finding{}
	for i, found := range answers {
		for _, f := range found {
			if f.Name == "" {
				f.Name = questions[i].name
			} else {
				f.Name = questions[i].name + "." + f.Name
			}
			f.Text, f.Way = oneLine(hide.Hide(f.Text)), oneLine(hide.Hide(f.Way))
			report.Healthy = report.Healthy && f.Colour != Red
			report.Findings = append(report.Findings, f)
		}
	}
	return report, nil
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// The findings of a check that has one. %v of an error is said as it is.
func green(format string, args ...any) []Finding {
	return []Finding{{Colour: Green, Text: fmt.Sprintf(format, args...)}}
}

func yellow(way, format string, args ...any) []Finding {
	return []Finding{{Colour: Yellow, Text: fmt.Sprintf(format, args...), Way: way}}
}

func red(way, format string, args ...any) []Finding {
	return []Finding{{Colour: Red, Text: fmt.Sprintf(format, args...), Way: way}}
}

func grey(format string, args ...any) []Finding {
	return []Finding{{Colour: Grey, Text: "not asked: " + fmt.Sprintf(format, args...)}}
}

// named gives findings a name below their check's.
func named(name string, found []Finding) []Finding {
	for i := range found {
		found[i].Name = name
	}
	return found
}

// cause is why a question was not answered; its bound, if that was it.
func cause(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return context.Cause(ctx)
	}
	return err
}
