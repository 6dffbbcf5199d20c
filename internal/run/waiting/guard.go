package waiting

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/terraform"
)

// Guard is a run.Guard that looks at the objects that Terraform creates or deletes while it does so. A
// preflight cannot close the time between its look and the provider's request. bpg/proxmox then takes a
// foreign machine for its own: its first request fails with "already exists", and on the next one it counts
// that as success and resizes the disks. It ignores an interrupt meanwhile. So castle kills Terraform when it
// sees a foreign object; the next run completes the others by the intent, as after any kill.
type Guard struct {
	Preflights []gate.Preflight // those that can look
	Creates    []gate.Known     // with the identities that were recorded before
	Deletes    []gate.Known

	work    *run.Workspace
	looking context.Context
	stop    context.CancelCauseFunc // interrupts Terraform
	looks   sync.WaitGroup

	mu      sync.Mutex
	changes map[string]chan terraform.Phase // gets how the change has ended; closed if it was cut short
	met     []encounter
	errs    []error
}

// encounter is a foreign object that Terraform was creating or deleting as one of the stage's.
type encounter struct {
	preflight gate.Preflight
	known     gate.Known
	action    string
	reading   gate.Reading
	ended     bool // the change had ended before
}

const (
	firstLook   = 200 * time.Millisecond // until the second look; the provider waits a second
	longestLook = 2 * time.Second
)

var errForeign = errors.New("a foreign object is in the way")

// Watch implements run.Guard: it refuses the result of apply if a foreign object was met.
func (g *Guard) Watch(ctx context.Context, w *run.Workspace, apply func(context.Context) error) error {
	if len(g.Preflights) == 0 {
		return apply(ctx)
	}
	applying, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	looking, end := context.WithCancel(context.WithoutCancel(ctx)) // Terraform goes on after an interrupt
	defer end()
	g.work, g.looking, g.stop, g.changes = w, looking, stop, map[string]chan terraform.Phase{}
	err := apply(applying)
	if ctx.Err() != nil {
		end()
	}
	g.mu.Lock()
	for _, change := range g.changes {
		close(change)
	}
	g.mu.Unlock()
	g.looks.Wait()
	if len(g.met) > 0 {
		err = errors.Join(g.refuse(ctx), context.Cause(ctx))
	}
	return errors.Join(append(g.errs, err)...)
}

// Follow implements run.Guard: it looks at an object from the start of its change to its end.
func (g *Guard) Follow(c terraform.Change) {
	if len(g.Preflights) == 0 {
		return
	}
	known := g.Creates
	if c.Action == "delete" {
		known = g.Deletes
	}
	i := slices.IndexFunc(known, func(k gate.Known) bool { return k.Address == c.Address })
	if i < 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	key := c.Action + " " + c.Address
	ended, running := g.changes[key]
	switch {
	case c.Phase == terraform.Started:
		ended = make(chan terraform.Phase, 1)
		g.changes[key] = ended
		g.looks.Go(func() { g.look(known[i], c.Action, ended) })
	case running:
		ended <- c.Phase
		delete(g.changes, key)
	}
}

// look looks at an object until it is seen, and once more when its change has ended. Before a deletion one
// answer is enough: whatever appears at the id afterwards is not touched.
func (g *Guard) look(known gate.Known, action string, end <-chan terraform.Phase) {
	var phase terraform.Phase // stays empty if the change was cut short: then the object may be unfinished
	ended := false
	pauses := wait.Backoff{Duration: firstLook, Factor: 2, Steps: 5, Cap: longestLook}
	for {
		preflight, reading, err := g.reading(known)
		switch {
		case reading.Foreign != nil && (phase != "" || !reading.Unsettled):
			g.meet(encounter{preflight, known, action, reading, ended})
			return
		case err != nil && phase == terraform.Done && action == "create":
			err = fmt.Errorf("whether %s is the stage's own: %w", known.Address, err)
			g.fail(run.NoAnswer(preflight.Name, err))
			return
		case ended, err == nil && action == "delete":
			return
		}
		var again <-chan time.Time
		if !reading.Own {
			again = time.After(pauses.Step())
		}
		select {
		case <-g.looking.Done():
			return
		case phase = <-end:
			ended = true
		case <-again:
		}
	}
}

// reading is that of the first preflight that sees the object.
func (g *Guard) reading(known gate.Known) (p gate.Preflight, reading gate.Reading, err error) {
	for _, p = range g.Preflights {
		if reading, err = p.Look(g.looking, known); err != nil || reading.Own || reading.Foreign != nil {
			return p, reading, err
		}
	}
	return p, reading, err
}

func (g *Guard) fail(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.errs = append(g.errs, err)
}

func (g *Guard) meet(e encounter) {
	g.mu.Lock()
	g.met = append(g.met, e)
	g.mu.Unlock()
	g.work.Run.Notice(fmt.Sprintf("%s: %s is not this cluster's; Terraform is stopped", g.work.Stage,
		e.reading.Foreign.What))
	g.stop(errForeign)
	if e.ended { // it is too late; the other changes may end
		return
	}
	if err := g.work.Root.Kill(g.looking); err != nil {
		g.fail(err)
	}
}

// refuse untracks the foreign objects and returns the error that describes them.
func (g *Guard) refuse(ctx context.Context) error {
	refusal := &run.PreflightError{TerraformCommand: g.work.Run.Cluster.TerraformCommand(g.work.Stage),
		UntrackCommand: g.work.Run.Cluster.UntrackCommand(g.work.Stage)}
	var created []string
	for _, e := range g.met {
		refusal.Preflight = e.preflight.Name
		foreign := *e.reading.Foreign
		foreign.Why = strings.TrimPrefix(foreign.Why+"\n    "+g.describe(ctx, e), "\n    ")
		refusal.Foreign = append(refusal.Foreign, foreign)
		if e.action == "create" {
			created = append(created, e.known.Address)
		}
	}
	return errors.Join(refusal, g.work.Untrack(ctx, created))
}

// describe returns how Terraform met a foreign object, and what the provider did to it.
func (g *Guard) describe(ctx context.Context, e encounter) string {
	if e.action == "delete" {
		return "Terraform was about to delete it as " + e.known.Address + " and was killed"
	}
	text := "it appeared while Terraform created " + e.known.Address + "; "
	now, err := e.preflight.Look(ctx, e.known)
	changed := changedProperties(e.reading.Properties, now.Properties)
	switch {
	case err != nil || now.Properties == nil:
		return text + "whether the provider has changed it is unknown"
	case len(changed) > 0:
		return text + "the provider has changed it: " + strings.Join(changed, "; ")
	case e.ended:
		return text + "the provider may have resized its disks and started it"
	}
	return text + "Terraform was killed, and nothing of it has changed"
}

// changedProperties describes the differences between two looks at an object.
func changedProperties(was, now map[string]string) []string {
	all := maps.Clone(was)
	maps.Copy(all, now)
	delete(all, "digest") // of the others
	var changed []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if was[name] != now[name] {
			changed = append(changed, fmt.Sprintf("%s was %s, is %s", name, cmp.Or(was[name], "not set"),
				cmp.Or(now[name], "not set")))
		}
	}
	return changed
}
