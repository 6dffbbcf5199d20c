package review

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/siderolabs/gen/xslices"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube/release"
	"github.com/ephemeral-castle/castle/internal/secret"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/terraform"
	"github.com/ephemeral-castle/castle/internal/terraform/planned"
)

// The states of a stage in a plan.
const (
	UpToDate    = "up_to_date"  // a create would not start Terraform
	Unchanged   = "unchanged"   // Terraform planned no change
	Changes     = "changes"     // Changes lists them
	Drifted     = "drifted"     // likewise, and its inputs have not changed since its last apply
	Unknown     = "unknown"     // castle could not look at all that it owns: Reason says why
	Waits       = "waits"       // its inputs are known after apply: Missing names them
	Unreachable = "unreachable" // its cluster does not answer
	Failed      = "failed"      // its plan failed: Reason says why
	Refused     = "refused"     // a preflight refuses a create, and Terraform planned no change
)

// IsPlanned reports whether Terraform planned a stage in this state with its inputs.
func IsPlanned(state string) bool { return state == UpToDate || state == Unchanged || HasWork(state) }

// HasWork reports whether a create would change something in a stage in this state.
func HasWork(state string) bool { return state == Changes || state == Drifted }

// Look is what a plan has found at one stage, for other reports.
type Look struct {
	State   string
	Reason  string
	Refused []string // why a preflight would refuse a create
	Changes []Change
}

// Restore is the action of castle's own change: it applies an object of an installed Helm release again.
const Restore = "restore"

// Absent is the reason of a Restore of an object that does not exist.
const Absent = "absent"

// Restored is the change that a create makes to an object of a release.
func Restored(d release.Difference) Change {
	c := Change{Address: d.Object.String(), Action: Restore, Attributes: d.Paths, Paths: d.Paths,
		Drift: d.Paths, Absent: d.Absent}
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
	Attributes []string `json:"attributes,omitempty"` // names of those that change
	// Paths lead into the attributes, to where they change or force a replacement: cpu.cores, values[0].
	Paths []string `json:"paths,omitempty"`
	// Values are those of the paths that are short and not sensitive.
	Values []Value `json:"values,omitempty"`
	// Drift holds those of the paths that differ from the last apply: somebody else has changed them.
	Drift []string `json:"drift,omitempty"`
	// Absent: the last apply left the object, and it does not exist any more.
	Absent bool `json:"absent,omitempty"`
	// Lost are disks that somebody has detached and that the change replaces by empty ones.
	Lost []string `json:"lost,omitempty"`
	// Machine is the machine that it replaces or deletes: VM 421 on node pve, with its disks.
	Machine  string `json:"machine,omitempty"`
	From     string `json:"moved_from,omitempty"` // the address before a move
	Imported bool   `json:"imported,omitempty"`   // by an import block of the module
}

// Value is an attribute before and after a change, as Terraform writes it.
type Value struct {
	Path string `json:"path"`
	Was  string `json:"was"`
	Is   string `json:"is"`
}

// Drift is a resource that differs from its last apply in a way that no apply changes back: the attribute is
// computed, or the module ignores it.
type Drift struct {
	Address string   `json:"address"`
	Absent  bool     `json:"absent,omitempty"`
	Paths   []string `json:"paths,omitempty"` // of the attributes; never values
}

// Mask hides secrets in the names.
func (d *Drift) Mask(hide func(string) string) {
	d.Address = hide(d.Address)
	secret.HideAll(hide, d.Paths)
}

// Mask hides secrets in the names.
func (c *Change) Mask(hide func(string) string) {
	for _, text := range []*string{&c.Address, &c.Reason, &c.From, &c.Machine} {
		*text = hide(*text)
	}
	secret.HideAll(hide, c.Attributes, c.Paths, c.Drift, c.Lost)
	for i, v := range c.Values {
		c.Values[i] = Value{hide(v.Path), hide(v.Was), hide(v.Is)}
	}
}

// String formats the change with Terraform's signs.
func (c Change) String() string { return strings.Join(Lines([]Change{c}), "\n") }

// Lines formats changes: a line each, with its reason in a column, and what it destroys below it.
func Lines(changes []Change) (lines []string) {
	const most = 60 // a longer address moves its own reason only
	width := 0
	for _, c := range changes {
		if c.why() != "" {
			width = max(width, min(len(c.Address), most))
		}
	}
	for _, c := range changes {
		lines = append(lines, c.line(width))
		if c.Machine != "" {
			lines = append(lines, "      "+c.Machine)
		}
		lines = append(lines, xslices.Map(c.Lost, func(lost string) string { return "      " + lost })...)
	}
	return lines
}

func (c Change) line(width int) string {
	signs := map[string]string{
		"create": "+", "adopt": ">", "import": ">", "update": "~", "replace": "-/+", "delete": "-",
		"move": "=", "forget": ".", Restore: "~",
		"read": "<=",
	}
	line := fmt.Sprintf("%3s %-*s  %s", cmp.Or(signs[c.Action], "?"), width, c.Address, c.why())
	return strings.TrimRight(line, " ")
}

// reasons explain Terraform's.
var reasons = map[string]string{
	"tainted":                           "replaced, because it is tainted",
	"requested":                         "replaced on request",
	"replace_triggered_by":              "replaced, because a resource in replace_triggered_by changes",
	"delete_because_no_resource_config": "no longer in the configuration",
	"delete_because_no_module":          "its module is no longer in the configuration",
	"delete_because_no_move_target":     "the target of its move is not in the configuration",
	"delete_because_wrong_repetition":   "count or for_each was added or removed",
	"delete_because_count_index":        "count no longer includes its index",
	"delete_because_each_key":           "for_each no longer includes its key",
	"read_because_config_unknown":       "read in the create, when its arguments are known",
	"read_because_dependency_pending":   "read in the create, after the resources that it depends on",
}

// why explains the change: its reason, the attributes that the configuration changes, and the drift.
func (c Change) why() string {
	isDrift := func(path string) bool { return slices.Contains(c.Drift, path) }
	paths := c.Paths
	if paths == nil {
		paths = c.Attributes
	}
	var why []string
	add := func(is bool, text string) {
		if is {
			why = append(why, text)
		}
	}
	add(c.From != "", "moved from "+c.From)
	add(c.Imported, "imported")
	add(c.Action == "forget", "removed from the state, not destroyed")
	switch reason, known := reasons[c.Reason]; {
	case c.Action == "forget": // it says enough
	case known:
		add(true, reason)
	case c.Action == "replace" && len(paths) > 0:
		add(true, "replaced, because "+names(c.withValues(paths))+" "+
			map[bool]string{true: "changes", false: "change"}[len(paths) == 1])
	case c.Action == Restore: // its reason is drift
	default:
		add(c.Reason != "", strings.ReplaceAll(c.Reason, "_", " "))
	}
	if c.Action != "replace" {
		own := slices.DeleteFunc(slices.Clone(paths), isDrift)
		add(len(own) > 0, names(c.withValues(own)))
	}
	add(c.Absent, "drift: absent")
	add(!c.Absent && len(c.Drift) > 0, "drift: "+names(c.withValues(c.Drift)))
	return strings.Join(why, "; ")
}

// withValues adds their values to paths: "cpu.cores 2 → 4".
func (c Change) withValues(paths []string) []string {
	all := slices.Clone(paths)
	for i, path := range all {
		for _, v := range c.Values {
			if v.Path == path && v.Was != v.Is { // masked, they may be equal
				all[i] = path + " " + v.Was + " → " + v.Is
			}
		}
	}
	return all
}

// names lists a few paths.
func names(paths []string) string {
	const most = 6
	if more := len(paths) - most; more > 1 {
		return fmt.Sprintf("%s and %d more", strings.Join(paths[:most], ", "), more)
	}
	return strings.Join(paths, ", ")
}

// Summarize lists changes of a plan by address. A create of an adopted address counts as an adoption. It
// also lists the drift that the changes leave.
func Summarize(ctx context.Context, plan *terraform.Plan, changes []terraform.Change, adopted []string) (
	all []Change, left []Drift, err error) {
	var named map[string]planned.Attributes
	var drift map[string]planned.Drift
	altered := func(c terraform.Change) bool { return c.Action == "update" || c.Action == "replace" }
	if plan.Drifted || slices.ContainsFunc(changes, altered) {
		if named, drift, err = plan.Differences(ctx); err != nil {
			return nil, nil, err
		}
	}
	for _, c := range changes {
		one := Change{Address: c.Address, Action: c.Action, Reason: c.Reason, From: c.From,
			Imported: c.Imported}
		if altered(c) {
			one.Attributes, one.Paths = named[c.Address].Names, named[c.Address].Paths
			for _, d := range named[c.Address].Differences {
				if was, is, ok := d.Texts(); ok {
					one.Values = append(one.Values, Value{d.Path, was, is})
				}
			}
		}
		if c.Action == "create" && slices.Contains(adopted, c.Address) {
			one.Action = "adopt"
		}
		one.attribute(drift)
		all = append(all, one)
	}
	// Terraform's own order is another one each time.
	slices.SortStableFunc(all, func(a, b Change) int { return strings.Compare(a.Address, b.Address) })
	for _, address := range slices.Sorted(maps.Keys(drift)) {
		d := drift[address]
		left = append(left, Drift{address, d.Absent, d.Paths})
	}
	return all, left, nil
}

// attribute names the part of the change that reverts drift, and removes that from the drift.
func (c *Change) attribute(drift map[string]planned.Drift) {
	d, drifted := drift[c.Address]
	if !drifted {
		return
	}
	delete(drift, c.Address)
	c.Absent = d.Absent && (c.Action == "create" || c.Action == "adopt")
	meets := func(paths []string, path string) bool {
		return slices.ContainsFunc(paths, func(p string) bool {
			return contains(p, path) || contains(path, p)
		})
	}
	c.Drift = append(c.Drift, xslices.Filter(c.Paths, func(path string) bool {
		return meets(d.Paths, path)
	})...)
	d.Paths = slices.DeleteFunc(slices.Clone(d.Paths), func(p string) bool { return meets(c.Drift, p) })
	if len(d.Paths) > 0 && c.Action != "delete" && c.Action != "replace" {
		drift[c.Address] = d
	}
}

// addsDisk matches the path of a change that gives a machine a disk which it does not have.
var addsDisk = regexp.MustCompile(`^disk(\[\d+\](\.interface)?)?$`)

// MarkLost adds the detached disks of a machine to a change that makes an empty disk there.
func MarkLost(changes []Change, detached []gate.Detached) {
	for i, c := range changes {
		for _, d := range detached {
			if d.Address == c.Address && c.Action == "update" &&
				slices.ContainsFunc(c.Paths, addsDisk.MatchString) {
				changes[i].Lost = append(changes[i].Lost, d.Text)
			}
		}
	}
}

// NameMachines adds the machines to the changes that replace or delete them. st is the stage's state.
func NameMachines(changes []Change, st *state.State) {
	for i, c := range changes {
		at := slices.IndexFunc(st.Resources, func(res state.Resource) bool {
			return res.Address == c.Address && !res.Deposed
		})
		if at >= 0 && (c.Action == "replace" || c.Action == "delete") {
			changes[i].Machine = cluster.MachineOf(st.Resources[at].Type, st.Resources[at].Attributes)
		}
	}
}

// contains reports whether a path is another one or lies below it.
func contains(path, below string) bool {
	rest, is := strings.CutPrefix(below, path)
	return is && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// Loss lists the existing resources of a stage that a create is about to replace or destroy.
type Loss struct {
	Stage, Layer string
	Changes      []Change
}

// UnagreedError reports that castle left a stage unchanged because its losses were not confirmed.
type UnagreedError struct {
	Loss  Loss
	Asked bool // somebody was asked, and did not agree
}

func (e *UnagreedError) Error() string {
	text := "not confirmed, nothing was changed"
	if !e.Asked {
		text += "; without a terminal, pass --yes"
	}
	return text + ". It would replace or destroy:" + list(e.Loss.Changes)
}

// list returns a line for each change.
func list(changes []Change) string {
	var b strings.Builder
	for _, line := range Lines(changes) {
		b.WriteString("\n  " + line)
	}
	return b.String()
}

// Losses returns the changes that replace or delete an intact resource, unless an earlier run has begun that.
func Losses(changes []terraform.Change, st *state.State, intent *state.Intent) []terraform.Change {
	return slices.DeleteFunc(destructions(changes, st), func(c terraform.Change) bool {
		return c.Reason == "tainted" || intent.Replaces(c.Address)
	})
}

// issuedType is a certificate. Its replacement destroys nothing: the one before it stays valid to its end.
const issuedType = "tls_locally_signed_cert"

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
		case c.Action != "replace" && c.Action != "delete", c.Action == "replace" && c.Type == issuedType:
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
