package talos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/client"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/zclconf/go-cty/cty"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/gate"
)

// PreflightTypes lists the preflights that check Talos machines.
func PreflightTypes() []gate.PreflightType { return []gate.PreflightType{maintenanceType()} }

// PreflightMaintenance is the preflight of platforms on existing machines.
const PreflightMaintenance = "talos_maintenance"

// maintenanceType refuses to configure a foreign machine. A machine in maintenance mode accepts a
// configuration from anybody, and a configured machine accepts one from the owner of its secrets. Either
// installs it again. So the stage may configure a machine only if it waits for a configuration, or accepts
// this cluster's administrator, which proves that this cluster configured it. After a destroy the same check
// verifies that each machine of the state waits for one again.
func maintenanceType() gate.PreflightType {
	return gate.PreflightType{
		Name:    PreflightMaintenance,
		Summary: "Every machine waits for its configuration, or has this cluster's",
		Attributes: map[string]gate.Attribute{
			"endpoints": {Type: cty.Map(cty.String), Required: true,
				Help: "The machines' own addresses, by the key of the instance that configures each."},
			"resource": {Type: cty.String, Required: true,
				Help: "The resource whose instances configure the machines, " +
					"such as \"talos_machine_configuration_apply.node\"."},
			"founders": {Type: cty.List(cty.String), Help: "The keys of the control planes."},
			"founding": {Type: cty.String,
				Help: "The resource that bootstraps them: it is created again if all of them were reset."},
			"client_configuration": clientConfigurationAttribute(),
			"timeout": {Type: cty.String, Valid: gate.ValidDuration,
				Help: "How long to wait for machines that do not answer; three minutes if not given."},
		},
		New: func(name string, _ gate.Target, values gate.Values) (gate.Preflight, error) {
			c := &maintenance{
				resource: values.String("resource"), founding: values.String("founding"),
				interval: time.Second / 2, timeout: cmp.Or(values.Duration("timeout"), 3*time.Minute),
			}
			err := values.Decode("endpoints", &c.endpoints)
			err = errors.Join(err, values.Decode("founders", &c.founders))
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
	interval  time.Duration // between attempts to reach machines that do not answer
	timeout   time.Duration // for them: they may be starting
}

// owner tells who configured a machine.
type owner int

const (
	unconfigured owner = iota
	own
	others
	unknown // it does not answer
)

// ownership is the result of one attempt for a machine.
type ownership struct {
	owner  owner
	reason string // why the owner is unknown
}

func (c *maintenance) inspect(ctx context.Context, known []gate.Known, report func(string)) (gate.Inspection,
	error) {
	recorded := map[string]string{} // the addresses in the state
	for _, k := range known {
		recorded[k.Address] = k.Address
	}
	keys := slices.Sorted(maps.Keys(c.endpoints))
	machines, err := c.query(ctx, keys, report)
	var found gate.Inspection
	blank := 0
	for i, key := range keys {
		c.addFinding(&found, key, recorded[fmt.Sprintf("%s[%q]", c.resource, key)], machines[i])
		if slices.Contains(c.founders, key) && machines[i].owner == unconfigured {
			blank++
		}
	}
	if blank > 0 && blank == len(c.founders) && recorded[c.founding] != "" {
		found.Lost = append(found.Lost, c.founding)
	}
	return found, err
}

// query checks all machines until each of them answers, or until the timeout. It fails only if it is
// cancelled; a deadline ends only the wait.
func (c *maintenance) query(ctx context.Context, keys []string, report func(string)) ([]ownership, error) {
	m := &machines{config: c.config, timeout: attempt}
	for _, key := range keys {
		m.endpoints = append(m.endpoints, c.endpoints[key])
	}
	var found []ownership
	reported := map[string]bool{}
	once := func(within context.Context) (bool, error) {
		answers, err := queryAll(ctx, m, m.queryOwnership)
		if err == nil || found == nil { // an interrupted attempt knows less than the one before it
			found = answers
		}
		done := true
		for i, o := range found {
			text := fmt.Sprintf("waiting for %s: %s", c.describe(keys[i]), o.reason)
			if o.owner == unknown && !reported[text] && within.Err() == nil {
				reported[text] = true
				report(text)
			}
			done = done && o.owner != unknown
		}
		return done, nil
	}
	err := wait.PollUntilContextTimeout(ctx, c.interval, c.timeout, true, once)
	if err != nil && errors.Is(ctx.Err(), context.Canceled) {
		return found, context.Cause(ctx)
	}
	return found, nil
}

// queryOwnership finds out whose configuration one machine has.
func (m *machines) queryOwnership(ctx context.Context, endpoint string) ownership {
	if m.config != nil {
		p := m.call(ctx, endpoint, "its version", func(c *client.Client) error {
			_, err := c.Version(ctx)
			return err
		})
		switch {
		case p == nil:
			return ownership{owner: own}
		case p.kind == rejectsCaller:
			return ownership{owner: others}
		case p.kind != unknownCA: // in maintenance mode a machine's certificate is unknown, too
			return ownership{unknown, p.reason}
		}
	}
	maintenance, err := m.inMaintenance(ctx, endpoint)
	switch {
	case err != nil:
		return ownership{unknown, m.explain(endpoint, err, "its version").reason}
	case maintenance:
		return ownership{owner: unconfigured}
	}
	return ownership{owner: others}
}

func (c *maintenance) describe(key string) string {
	return fmt.Sprintf("machine %s at %s", key, c.endpoints[key])
}

// addFinding adds a machine's finding. recorded is its address in the state; empty if it has none.
func (c *maintenance) addFinding(found *gate.Inspection, key, recorded string, m ownership) {
	where := c.endpoints[key]
	proof := event.OwnedObject{Kind: "machine configuration", ID: key, Where: where}
	f := gate.Foreign{What: c.describe(key)}
	switch m.owner {
	case unconfigured:
		if recorded != "" {
			found.Lost = append(found.Lost, recorded)
		}
		proof.Gone = true
		proof.Reason = "the machine waits for a new configuration; disks other than Talos' own were not wiped"
	case own:
		found.Present = append(found.Present, f.What)
		proof.Reason = "the machine runs with it"
		proof.Fix = "create the cluster again, which includes the machine, and destroy it; " +
			"or reset the machine: boot it from Talos' ISO, whose menu offers that"
	case others:
		f.Why = "runs with other Talos secrets than this cluster's: it belongs to another cluster, " +
			"or this one's secrets were lost"
		f.Fixes = []string{
			"use another machine for the cluster, or correct its address",
			fmt.Sprintf("if it is not needed any more, reset it with the talosconfig of its cluster: "+
				"talosctl -e %s -n %s reset --graceful=false --reboot "+
				"--system-labels-to-wipe STATE --system-labels-to-wipe EPHEMERAL", where, where),
			"without that talosconfig, boot it from Talos' ISO, whose menu offers a reset",
		}
		f.ConflictsWith = recorded
		found.Foreign = append(found.Foreign, f)
		proof.Reason = "the machine runs with another cluster's configuration"
	default:
		f.Why, f.Untrack = "does not answer: "+m.reason, recorded
		f.Fixes = []string{"switch it on with Talos on its disk or in its drive, " +
			"and compare the address with the one on its screen"}
		if recorded != "" {
			found.Unverified = append(found.Unverified, f)
		} else {
			found.Unusable = append(found.Unusable, f)
		}
		proof.Reason = "the machine does not answer: " + m.reason
		proof.Fix = "switch it on; if it is gone for good, remove it from the state with castle state forget"
	}
	// A machine that the state never had needs no proof, unless it has this cluster's configuration.
	if recorded != "" || m.owner == own {
		found.Proof = append(found.Proof, proof)
	}
}
