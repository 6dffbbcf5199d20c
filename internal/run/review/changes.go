package review

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/terraform"
)

// The states of a stage in a plan.
const (
	UpToDate    = "current"     // a create would not start Terraform
	Unchanged   = "unchanged"   // Terraform planned no change
	Changes     = "changes"     // Changes lists them
	Waits       = "waits"       // its inputs are known after apply: Missing names them
	Unreachable = "unreachable" // its cluster does not answer
	Failed      = "failed"      // its plan failed: Reason says why
)

// IsPlanned reports whether Terraform planned a stage in this state with its inputs.
func IsPlanned(state string) bool { return state == UpToDate || state == Unchanged || state == Changes }

// Change is the planned change of one resource.
type Change struct {
	Address    string   `json:"address"`
	Action     string   `json:"action"`               // Terraform's, or adopt
	Reason     string   `json:"reason,omitempty"`     // in Terraform's words: tainted, cannot_update …
	Attributes []string `json:"attributes,omitempty"` // names of those that change; never values
}

// String formats the change with Terraform's signs.
func (c Change) String() string {
	signs := map[string]string{
		"create": "+", "adopt": ">", "import": ">", "update": "~", "replace": "-/+", "delete": "-",
		"move": "=", "forget": ".",
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

// Summarize lists changes of a plan by address and counts them by action. A create of an adopted address
// counts as an adoption.
func Summarize(ctx context.Context, plan *terraform.Plan, changes []terraform.Change, adopted []string) (
	all []Change, counts map[string]int, err error) {
	var names map[string][]string
	altered := func(c terraform.Change) bool { return c.Action == "update" || c.Action == "replace" }
	if slices.ContainsFunc(changes, altered) {
		if names, err = plan.ChangedAttributes(ctx); err != nil {
			return nil, nil, err
		}
	}
	counts = map[string]int{}
	for _, c := range changes {
		one := Change{Address: c.Address, Action: c.Action, Reason: c.Reason, Attributes: names[c.Address]}
		if c.Action == "create" && slices.Contains(adopted, c.Address) {
			one.Action = "adopt"
		}
		counts[one.Action]++
		all = append(all, one)
	}
	// Terraform's own order is another one each time.
	slices.SortStableFunc(all, func(a, b Change) int { return strings.Compare(a.Address, b.Address) })
	return all, counts, nil
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
		return c.Reason == "tainted" || intent.Replaces(c.Address)
	})
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
