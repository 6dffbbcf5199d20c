// Package unrecorded looks for machines of a cluster that its state directory has no record of: the record
// was lost, or another state directory has it. Without it, an empty record would prove that nothing exists.
// It reads how the recorded machines are now, and finds copies of them, too. The API token is the first that
// the datacenter accepts: of the configuration, the recorded outputs, the environment, or the secret store.
package unrecorded

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/siderolabs/gen/xslices"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/platform"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/run/waiting"
	"github.com/ephemeral-castle/castle/internal/secret"
	"github.com/ephemeral-castle/castle/internal/state"
)

// answerTime bounds a look.
const answerTime = 10 * time.Second

// Machine is a virtual machine with the name and tags of the cluster, or the uuid of one of its machines.
type Machine struct {
	ID     int    `json:"vmid"`
	Name   string `json:"name"`
	Node   string `json:"node"`
	Status string `json:"status"`
	CopyOf int    `json:"copy_of,omitempty"` // the machine of the state that has the same uuid

	called, where string // in the platform's words: VM 421, on node pve1
}

func (m Machine) String() string {
	text := strings.TrimRight(fmt.Sprintf("%s %q %s, %s", m.called, m.Name, m.where, m.Status), ", ")
	if m.CopyOf != 0 {
		text += fmt.Sprintf(", a copy of VM %d, whose uuid it has", m.CopyOf)
	}
	return text
}

// Found is the result of a look.
type Found struct {
	Machines []Machine `json:"machines"`              // unknown to this state
	NotAsked string    `json:"not_checked,omitempty"` // why castle cannot tell whether there are any
	Fixes    []string  `json:"fixes,omitempty"`

	Facts     []platform.Fact `json:"-"` // how the recorded machines are now
	Costs     *platform.Costs `json:"-"` // of the configured ones; nil if they are not known
	Endpoint  string          `json:"-"` // of the datacenter; empty if the configuration names none
	Stages    []string        `json:"-"` // whose records lack machines
	platform  string          // Proxmox
	preflight string          // whose machines were found first: vm_ids.free
}

// None reports whether the look has found nothing that a user must know.
func (f *Found) None() bool { return len(f.Machines) == 0 && f.NotAsked == "" }

// Mask hides secrets in every text.
func (f *Found) Mask(hide func(string) string) {
	f.NotAsked = hide(f.NotAsked)
	secret.HideAll(hide, f.Fixes)
	for i := range f.Machines {
		m := &f.Machines[i]
		m.Name, m.Node, m.where, m.Status = hide(m.Name), hide(m.Node), hide(m.where), hide(m.Status)
	}
	for i := range f.Facts {
		f.Facts[i].Mask(hide)
	}
}

// Lines describe what was found, with the fixes; none if nothing was.
func (f *Found) Lines() (lines []string) {
	lines = xslices.Map(f.Machines, func(m Machine) string { return "unknown to this state: " + m.String() })
	if f.NotAsked != "" {
		lines = append(lines, "machines of the cluster may exist: "+f.platform+" was not asked: "+f.NotAsked)
	}
	lines = append(lines, xslices.Map(f.Fixes, func(fix string) string { return "  - " + fix })...)
	return lines
}

// Refusal returns the error of a command that changes nothing because of the machines; nil if there are none.
func (f *Found) Refusal(c *cluster.Cluster, unchanged string) error {
	if len(f.Machines) == 0 {
		return nil
	}
	what := fmt.Sprintf("%s has machines that its state does not know; %s", c.Name(), unchanged)
	for _, m := range f.Machines {
		what += "\n  " + m.String()
	}
	return &run.PreflightError{Preflight: f.preflight, Foreign: []gate.Foreign{{What: what, Fixes: f.Fixes}}}
}

// Unproved returns a *run.LeftoverError if the datacenter was not asked.
func (f *Found) Unproved(c *cluster.Cluster) error {
	if f.NotAsked == "" {
		return nil
	}
	return &run.LeftoverError{Objects: []event.OwnedObject{{
		Kind: "machines", ID: "of " + c.Name(), Fix: strings.Join(f.Fixes, "\n    - "),
		Reason: fmt.Sprintf("%s records none, and %s was not asked: %s", c.Place(), f.platform, f.NotAsked),
	}}}
}

// Look asks the datacenters of the stages' machines for those that the record of r's cluster lacks. The
// outputs of r are those that were recorded.
func Look(ctx context.Context, r *run.Run, stages []*config.Stage) (*Found, error) {
	f := &Found{Machines: []Machine{}, platform: "the platform"}
	if r.Cluster.InvalidConfig != nil {
		f.NotAsked = "the configuration is invalid"
		f.Fixes = []string{"correct it: " + r.Cluster.CommandLine("check")}
		return f, nil
	}
	limited, stop := context.WithTimeoutCause(ctx, answerTime, fmt.Errorf("no answer within %s", answerTime))
	defer stop()
	for _, s := range stages {
		for _, p := range s.Preflights {
			of := cluster.Platforms().OfMachines(p.Type.Name)
			if of == nil {
				continue
			}
			f.platform = of.Name()
			if err := (&look{run: r, stage: s, preflight: p, platform: of,
				found: f}).machines(limited); err != nil {
				return nil, r.Cluster.MaskError(err)
			}
		}
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	f.Mask(r.Cluster.Masker.Hide)
	return f, nil
}

// recordedElsewhere lists the machines that the cluster's other stages have, configured or not.
func (l *look) recordedElsewhere() (all []gate.Known, err error) {
	names, err := l.run.Cluster.Dir.Stages()
	for _, name := range names {
		dir := l.run.Cluster.Dir.Stage(name)
		if st, unread := dir.LastKnown(); name != l.stage.Name && unread == nil {
			more, unread := waiting.ExpectedResources(dir, st)
			all, err = append(all, more...), errors.Join(err, unread)
		}
	}
	return all, err
}

// machines adds the machines of one stage that its record lacks.
func (l *look) machines(ctx context.Context) error {
	dir := l.run.Cluster.Dir.Stage(l.stage.Name)
	st, err := dir.LastKnown()
	if errors.As(err, new(*state.UnreadableError)) {
		return nil // nobody knows what it has; every command reports the error itself
	} else if err != nil {
		return err
	}
	if l.known, err = waiting.ExpectedResources(dir, st); err != nil {
		return err
	}
	//nolint:errcheck // what is not known is absent
	values, _ := l.preflight.Values(l.stage, l.run.Outputs.Scope(l.stage))
	l.found.Endpoint = values.String("endpoint")
	if l.others, err = l.recordedElsewhere(); err != nil {
		return err
	}
	lacks := l.platform.LacksMachines(values, l.known)
	if lacks {
		l.found.Stages = append(l.found.Stages, l.stage.Name)
	}
	values, err = l.values(nil)
	guests, unseen, err := l.ask(ctx, values, err)
	if err != nil && !lacks {
		return nil
	}
	if err != nil {
		l.found.NotAsked = err.Error()
		_, variable := l.platform.Variables()
		l.found.Fixes = append(l.found.Fixes,
			"when "+l.platform.Name()+" answers, run the same command again; "+
				"castle also takes an API token from "+variable)
		return nil
	}
	copies := 0
	guests = slices.DeleteFunc(guests, func(g platform.Guest) bool { return g.Kept })
	for _, g := range guests {
		l.found.Machines = append(l.found.Machines,
			Machine{g.ID, g.Name, g.Node, g.Status, g.CopyOf, g.Called, g.Where})
		if g.CopyOf != 0 {
			copies++
		}
	}
	if copies > 0 {
		l.found.Fixes = append(l.found.Fixes, "a copy is a restored backup or a clone, and castle leaves "+
			"it: if nobody needs it, remove it in "+l.platform.Name())
	}
	switch {
	case len(guests) > copies:
		c := l.run.Cluster
		l.found.preflight = cmp.Or(l.found.preflight, l.preflight.Name())
		l.found.Fixes = slices.Concat(l.found.Fixes, waiting.OtherStateFixes(c), []string{
			"take them over, if this state has the keys that they were made with: " +
				c.Command("create") + " --adopt",
		})
	case len(unseen) > 0:
		l.found.NotAsked = fmt.Sprintf("the API token may not see what has the VM ids %d", unseen)
		l.found.Fixes = append(l.found.Fixes, "give the token VM.Audit on these VMs")
	}
	return nil
}
