package review

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ephemeral-castle/castle/internal/kube/release"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/terraform"
)

// The states of a stage in a plan.
const (
	UpToDate    = "current"     // a create would not start Terraform
	Unchanged   = "unchanged"   // Terraform planned no change
	Changes     = "changes"     // Changes lists them
	Drifted     = "drifted"     // likewise, and its inputs have not changed since its last apply
	Unknown     = "unknown"     // castle could not look at all that it owns: Reason says why
	Waits       = "waits"       // its inputs are known after apply: Missing names them
	Unreachable = "unreachable" // its cluster does not answer
	Failed      = "failed"      // its plan failed: Reason says why
)

// IsPlanned reports whether Terraform planned a stage in this state with its inputs.
func IsPlanned(state string) bool { return state == UpToDate || state == Unchanged || HasWork(state) }

// HasWork reports whether a create would change something in a stage in this state.
func HasWork(state string) bool { return state == Changes || state == Drifted }

// Look is what a plan has found at one stage, for other reports.
type Look struct {
	State   string
	Reason  string
	Changes []Change
}

// Restore is the action of a change that castle itself makes: it applies an object of an installed Helm
// release again.
const Restore = "restore"

// Absent is the reason of a Restore of an object that does not exist.
const Absent = "absent"

// Restored is the change that a create makes to an object of a release.
func Restored(d release.Difference) Change {
	c := Change{Address: d.Object.String(), Action: Restore, Attributes: d.Paths}
	if d.Absent {
		c.Reason = Absent
	}
	return c
}

// Change is the planned change of one resource.
type Change struct {
	Address    string   `json:"address"`
	Action     string   `json:"action"`               // Terraform's, adopt or restore
	Reason     string   `json:"reason,omitempty"`     // in Terraform's words: tainted, cannot_update …
	Attributes []string `json:"attributes,omitempty"` // names of those that change; never values
}

// String formats the change with Terraform's signs.
func (c Change) String() string {
	signs := map[string]string{
		"create": "+", "adopt": ">", "import": ">", "update": "~", "replace": "-/+", "delete": "-",
		"move": "=", "forget": ".", Restore: "~",
	}
	var why []string
	if c.Reason != "" {
		reason := strings.TrimPrefix(c.Reason, "delete_because_") // the sign shows the deletion
		why = append(why, strings.ReplaceAll(reason, "_", " "))
	}
	if len(c.Attributes) > 0 {
		why = append(why, strings.Join(c.Attributes, ", "))
	}
	line := fmt.Sprintf("%3s %s", cmp.Or(signs[c.Action], "?"), c.Address)
	if len(why) > 0 {
		line += " (" + strings.Join(why, ": ") + ")"
	}
	return line
}

// Summarize lists changes of a plan by address. A create of an adopted address counts as an adoption.
func Summarize(ctx context.Context, plan *terraform.Plan, changes []terraform.Change, adopted []string) (
	all []Change, err error) {
	var names map[string][]string
	altered := func(c terraform.Change) bool { return c.Action == "update" || c.Action == "replace" }
	if slices.ContainsFunc(changes, altered) {
		if names, err = plan.ChangedAttributes(ctx); err != nil {
			return nil, err
		}
	}
	for _, c := range changes {
		one := Change{Address: c.Address, Action: c.Action, Reason: c.Reason, Attributes: names[c.Address]}
		if c.Action == "create" && slices.Contains(adopted, c.Address) {
			one.Action = "adopt"
		}
		all = append(all, one)
	}
	// Terraform's own order is another one each time.
	slices.SortStableFunc(all, func(a, b Change) int { return strings.Compare(a.Address, b.Address) })
	return all, nil
}

// Loss lists the existing resources of a stage that a create is about to replace or destroy.
type Loss struct {
	Stage, Layer string
	Changes      []Change
}

// UnagreedError reports that castle left a stage unchanged because its losses were not confirmed.
type UnagreedError struct{ Loss Loss }

func (e *UnagreedError) Error() string {
	return "not confirmed, nothing was changed; without a terminal, pass --yes. " +
		"It would replace or destroy:" + list(e.Loss.Changes)
}

// list returns a line for each change.
func list(changes []Change) string {
	var b strings.Builder
	for _, c := range changes {
		fmt.Fprintf(&b, "\n  %s", c)
	}
	return b.String()
}

// Losses returns the changes that replace or delete an intact resource, unless an earlier run already
// began that change.
func Losses(changes []terraform.Change, st *state.State, intent *state.Intent) []terraform.Change {
	return slices.DeleteFunc(destructions(changes, st), func(c terraform.Change) bool {
		return c.Reason == "tainted" || intent.Replaces(c.Address)
	})
}

// destructions returns the changes that replace or delete a resource, also those that an earlier run began.
func destructions(changes []terraform.Change, st *state.State) []terraform.Change {
	aside := map[string]int{} // replaced objects that still exist
	for _, res := range st.Resources {
		if res.Deposed {
			aside[res.Address]++
		}
	}
	return slices.DeleteFunc(slices.Clone(changes), func(c terraform.Change) bool {
		switch {
		case c.Action != "replace" && c.Action != "delete":
			return true
		case c.Action == "delete" && aside[c.Address] > 0:
			aside[c.Address]--
			return true
		}
		return false
	})
}

// LossesError reports that castle did not apply a saved plan because it has losses.
type LossesError struct {
	File   string
	Losses []Loss
}

func (e *LossesError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s was not applied, because of --refuse-losses. It would replace or destroy:", e.File)
	for _, l := range e.Losses {
		for _, c := range l.Changes {
			fmt.Fprintf(&b, "\n  %s/%s %s", l.Layer, l.Stage, c)
		}
	}
	return b.String() + "\n  if that was reviewed, apply the same plan without --refuse-losses"
}

// UnreviewedError reports that castle left a stage unchanged because its plan contains unreviewed changes.
type UnreviewedError struct {
	File    string
	Changes []Change
	Fix     string
}

func (e *UnreviewedError) Error() string {
	return fmt.Sprintf("nothing was changed, as %s does not contain these changes:%s\n  %s",
		e.File, list(e.Changes), e.Fix)
}
