package review

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/terraform"
)

// Loss lists the existing resources of a stage that a create is about to replace or destroy.
type Loss struct {
	Stage, Layer string
	Changes      []Change
}

// UnagreedError reports that castle left a stage unchanged because its losses were not confirmed.
type UnagreedError struct{ Loss Loss }

func (e *UnagreedError) Error() string {
	var b strings.Builder
	b.WriteString(
		"not confirmed, nothing was changed; without a terminal, pass --yes. It would replace or destroy:")
	for _, c := range e.Loss.Changes {
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
	var b strings.Builder
	fmt.Fprintf(&b, "nothing was changed, as %s does not contain these changes:", e.File)
	for _, c := range e.Changes {
		fmt.Fprintf(&b, "\n  %s", c)
	}
	return b.String() + "\n  " + e.Fix
}
