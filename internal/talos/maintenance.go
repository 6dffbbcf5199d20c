package talos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/gate"
)

// PreflightTypes lists the preflights that ask Talos machines.
func PreflightTypes() []gate.PreflightType { return []gate.PreflightType{maintenanceType()} }

// PreflightMaintenance is the preflight of platforms whose machines somebody else made.
const PreflightMaintenance = "talos_maintenance"

// maintenanceType refuses to configure a machine that is somebody else's.
//
// A machine in maintenance mode takes a configuration from anybody, and so does one
// of another cluster whose secrets are at hand; either is installed anew. So a
// machine is the stage's to take only if it waits for a configuration, or lets this
// cluster's administrator in: it has its certificate from this cluster's secrets, so
// nobody else can have configured it.
//
// The machines outlive the cluster. What a destroy leaves is asked by the same
// question: each machine that the state knew must wait for a configuration again.
func maintenanceType() gate.PreflightType {
	text := cty.String
	return gate.PreflightType{
		Name:    PreflightMaintenance,
		Summary: "Every machine waits for its configuration, or has this cluster's",
		Attributes: map[string]gate.Attribute{
			"endpoints":            {Type: cty.Map(text), Required: true, Help: "The machines' own addresses, by the key of the resource instance that configures each."},
			"resource":             {Type: text, Required: true, Help: "The resource whose instances configure the machines, such as \"talos_machine_configuration_apply.node\"."},
			"founders":             {Type: cty.List(text), Help: "The keys of the control planes."},
			"founding":             {Type: text, Help: "The resource that bootstraps them: where all of them were reset, the cluster has to be founded anew."},
			"client_configuration": clientConfigurationAttribute(),
			"timeout":              {Type: text, Help: "How long machines that do not answer are waited for; three minutes if not given.", Valid: gate.ValidDuration},
		},
		New: func(name string, _ gate.Target, values gate.Values) (gate.Preflight, error) {
			c := &maintenance{resource: values.String("resource"), interval: 2 * time.Second, patience: cmp.Or(values.Duration("timeout"), 3*time.Minute)}
			c.founding = values.String("founding")
			err := errors.Join(values.Decode("endpoints", &c.endpoints), values.Decode("founders", &c.founders))
			// Before there are secrets, no machine can be the cluster's own.
			if err == nil && values.Has("client_configuration") {
				c.config, err = clientConfiguration(values)
			}
			if err != nil {
				return gate.Preflight{}, fmt.Errorf("%s: %w", name, err)
			}
			return gate.Preflight{Name: name, Inspect: c.inspect}, nil
		},
	}
}

type maintenance struct {
	config    *clientconfig.Config
	endpoints map[string]string // by key
	resource  string
	founders  []string // keys
	founding  string
	interval  time.Duration // between looks at machines that do not answer
	patience  time.Duration // with these: they may be starting
}

// standing is how a machine stands to the cluster.
type standing string

const (
	waiting standing = "waits for a configuration"
	own     standing = "has this cluster's configuration"
	foreign standing = "has another cluster's configuration"
	silent  standing = "does not answer"
)

// sight is what one look at a machine has shown.
type sight struct {
	standing
	why string // it is silent
}

func (c *maintenance) inspect(ctx context.Context, known []gate.Known, report func(string)) (gate.Inspection, error) {
	keys := slices.Sorted(maps.Keys(c.endpoints))
	seen, err := c.look(ctx, keys, report)
	recorded := func(address string) bool {
		return slices.ContainsFunc(known, func(k gate.Known) bool { return k.Address == address })
	}
	var found gate.Inspection
	blank := 0
	for i, key := range keys {
		address := fmt.Sprintf("%s[%q]", c.resource, key)
		c.judge(&found, key, address, seen[i], recorded(address))
		if slices.Contains(c.founders, key) && seen[i].standing == waiting {
			blank++
		}
	}
	if blank > 0 && blank == len(c.founders) && recorded(c.founding) {
		found.Lost = append(found.Lost, c.founding)
	}
	return found, err
}

// look asks all machines, and those that do not answer again for a while. It fails
// only if it was called off; a deadline ends the waiting and not the answer.
func (c *maintenance) look(ctx context.Context, keys []string, report func(string)) ([]sight, error) {
	within, stop := context.WithTimeout(ctx, c.patience)
	defer stop()
	next := time.NewTicker(c.interval)
	defer next.Stop()
	seen, told := make([]sight, len(keys)), map[string]bool{}
	for {
		m := &machines{config: c.config, timeout: attempt}
		var asked []int
		for i, key := range keys {
			if seen[i].standing == "" || seen[i].standing == silent {
				asked, m.endpoints = append(asked, i), append(m.endpoints, c.endpoints[key])
			}
		}
		answers, err := askAll(ctx, m, m.stands)
		quiet := false
		for j, i := range asked {
			if err == nil || seen[i].standing == "" { // one that was cut off says less than the one before it
				seen[i] = answers[j]
			}
			if seen[i].standing == silent {
				quiet = true
				if text := fmt.Sprintf("waiting for %s: %s", c.named(keys[i]), seen[i].why); !told[text] && within.Err() == nil {
					told[text] = true
					report(text)
				}
			}
		}
		if !quiet {
			return seen, nil
		}
		select {
		case <-next.C:
			continue
		case <-within.Done():
		}
		if errors.Is(ctx.Err(), context.Canceled) {
			return seen, context.Cause(ctx)
		}
		return seen, nil
	}
}

// stands asks one machine how it stands to the cluster.
func (m *machines) stands(ctx context.Context, endpoint string) sight {
	if m.config == nil {
		return m.virgin(ctx, endpoint)
	}
	c, problem := m.connect(ctx, endpoint)
	if problem != nil {
		return sight{silent, problem.what}
	}
	defer func() { _ = c.Close() }() //nolint:errcheck // nothing was written
	_, err := c.Version(ctx)
	if err == nil {
		return sight{standing: own}
	}
	what := m.explain(endpoint, err, "its version").what
	switch {
	case strings.HasPrefix(what, "refuses the talosconfig's certificate"):
		return sight{standing: foreign}
	case !isForeign(err):
		return sight{silent, what}
	}
	return m.virgin(ctx, endpoint)
}

// virgin asks a machine that has shown no certificate of the cluster whether it has
// any configuration: without one, its certificate is one that nobody knows, too.
func (m *machines) virgin(ctx context.Context, endpoint string) sight {
	virgin, err := m.maintained(ctx, endpoint)
	switch {
	case err != nil:
		return sight{silent, m.explain(endpoint, err, "its version").what}
	case virgin:
		return sight{standing: waiting}
	}
	return sight{standing: foreign}
}

func (c *maintenance) named(key string) string {
	return fmt.Sprintf("machine %s at %s", key, c.endpoints[key])
}

// judge adds to the findings what a machine's standing means for the stage.
// recorded says that the state has it configured.
func (c *maintenance) judge(found *gate.Inspection, key, address string, s sight, recorded bool) {
	what, where := c.named(key), c.endpoints[key]
	proof := event.Thing{Kind: "machine configuration", ID: key, Where: where}
	switch s.standing {
	case waiting:
		if recorded {
			found.Lost = append(found.Lost, address)
		}
		proof.Gone = true
		proof.Reason = "the machine waits for another; what it had on other disks than Talos' own was not wiped"
	case own:
		found.Present = append(found.Present, what)
		proof.Reason = "the machine runs with it"
		proof.Way = "create the cluster again, which takes the machine in, and destroy it; or reset the machine: boot it from Talos' ISO, where the menu offers that"
	case foreign:
		f := gate.Foreign{
			What: what, Why: "runs with other Talos secrets than this cluster's: it belongs to another cluster, or this one's secrets were lost",
			Fixes: []string{
				"take another machine for the cluster, or correct its address",
				fmt.Sprintf("if nobody needs what runs there, reset it with the talosconfig of its cluster: "+
					"talosctl -e %s -n %s reset --graceful=false --reboot --system-labels-to-wipe STATE --system-labels-to-wipe EPHEMERAL", where, where),
				"without that talosconfig, boot it from Talos' ISO, where the menu offers to reset it",
			},
		}
		if recorded {
			f.ConflictsWith = address
		}
		found.Foreign = append(found.Foreign, f)
		proof.Reason = "the machine runs with another cluster's by now"
	default:
		f := gate.Foreign{
			What: what, Why: "does not answer: " + s.why,
			Fixes: []string{"switch it on with Talos on it or in its drive, and compare the address with the one that its screen shows"},
		}
		if recorded {
			f.Untrack = address
			found.Unverified = append(found.Unverified, f)
		} else {
			found.Unusable = append(found.Unusable, f)
		}
		proof.Reason = "the machine does not answer: " + s.why
		proof.Way = "switch it on; if it is gone for good, forget it with castle state forget"
	}
	// One that the state never had is nothing to prove, unless it runs with what it should not.
	if recorded || s.standing == own {
		found.Proof = append(found.Proof, proof)
	}
}
