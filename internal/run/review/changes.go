package review

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

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

// Summarize lists a plan's changes by address and counts them by action. A create of an adopted address
// counts as an adoption.
func Summarize(changes []terraform.Change, names map[string][]string,
	adopted []string) (all []Change, counts map[string]int) {
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
	return all, counts
}
