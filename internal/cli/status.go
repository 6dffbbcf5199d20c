package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/foreign"
	"github.com/ephemeral-castle/castle/internal/operation/plan"
	"github.com/ephemeral-castle/castle/internal/operation/status"
	"github.com/ephemeral-castle/castle/internal/run/review"
	"github.com/ephemeral-castle/castle/internal/run/survival"
	"github.com/ephemeral-castle/castle/internal/run/unrecorded"
	"github.com/ephemeral-castle/castle/internal/ui"
)

func newStatus(a *app) *cobra.Command {
	exitCode, refresh, watch, certificates := false, false, false, false
	cmd := a.valueFlags(&cobra.Command{
		Use:   "status CLUSTER",
		Short: "Show stage and gate status",
		Long: `Show the versions, the last run, and three conditions that castle keeps apart:

  ready            the gates of what is applied are open, and no stage is unfinished
  changes pending  a create would change something; a new configuration alone closes no gate
  running          a run works on the cluster now: which, by whom, and at which step

Then show whether each stage is absent, ready, up to date, stale, drifted, refused, unknown, failed,
skipped or interrupted, and check every gate once. Exit code 0 whatever the status is.

A stage is ready if its gates are open and nothing is known to differ. It is stale if its inputs
have changed since the last apply. It is drifted if only an object that it owns is absent or
changed. It is refused if a preflight refuses a create, as for a VM at its id that is another
machine. It is unknown if castle could not look. castle compares the revisions of the
objects that it can list. --refresh looks at all of them, as castle plan does: then a stage without
a difference is up to date. It runs Terraform and locks the cluster.

The exit code with --exit-code is 0 if every stage is ready or up to date, 4 if a stage is refused,
and 5 if a gate is closed. It is 1 if a stage failed, is drifted or unknown, or is not ready for
another reason.

--certificates lists what expires instead: the kubeconfig, the talosconfig, the CAs, the caBundles
of webhooks, the tokens of the platform and of the secret stores, each with what renews it. What
castle could not read is shown as not checked. castle status and castle doctor warn 30 days before;
for what a secret store knows, doctor alone does.

--watch looks again every two seconds until it is interrupted: on a terminal it redraws the
screen, elsewhere it prints a block for each change, with -o json one line.`,
		Example: `  castle status blue
  castle status blue --watch
  castle status blue --refresh --exit-code
  castle status blue --certificates`,
		SuggestFor: []string{"show"},
		Args:       a.oneCluster(),
		RunE: func(cmd *cobra.Command, args []string) error {
			if certificates {
				if exitCode || refresh || watch {
					return usageError(cmd, errors.New("--certificates cannot be combined with "+
						"--exit-code, --refresh or --watch"))
				}
				return a.onCluster(nil, showCertificates(a))(cmd, args)
			}
			if watch {
				if exitCode || refresh {
					return usageError(cmd,
						errors.New("--watch cannot be combined with --exit-code or --refresh"))
				}
				return watchStatus(cmd, a, args)
			}
			return a.onCluster(nil, func(ctx context.Context, c *cluster.Cluster, _ []string) error {
				return showStatus(ctx, a, c, refresh, exitCode)
			})(cmd, args)
		},
	})
	cmd.Flags().BoolVar(&exitCode, "exit-code", false, "exit with 1, 4 or 5 unless every stage is ready")
	cmd.Flags().BoolVar(&refresh, "refresh", false, "look at every object that a stage owns")
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "look again and again, and show each change")
	cmd.Flags().BoolVar(&certificates, "certificates", false, "list what expires, and nothing else")
	return cmd
}

func showStatus(ctx context.Context, a *app, c *cluster.Cluster, refresh, exitCode bool) error {
	var looks map[string]review.Look
	if refresh {
		found, err := plan.Run(ctx, c, plan.Options{})
		if found == nil {
			return err
		}
		looks = found.Looks()
	}
	s, err := status.Run(ctx, c, looks)
	if err != nil {
		return err
	}
	for _, text := range s.Damaged {
		fmt.Fprintln(a.stderr, "castle:", text)
	}
	err = a.print(s, func(w io.Writer) { printStatus(statusPage(a, w), s) })
	switch {
	case err != nil || !exitCode || s.AllReady():
		return err
	case s.Any(status.Refused):
		return exitError(exitPreflight)
	case s.OnlyGates():
		return exitError(exitGate)
	}
	return exitError(exitFailed)
}

// watchInterval is the pause between two looks of --watch.
const watchInterval = 2 * time.Second

// watchStatus shows the status until castle is interrupted: on a terminal it redraws the screen, elsewhere it
// prints a block, or with -o json a line, for each change. Each look reads the configuration again.
func watchStatus(cmd *cobra.Command, a *app, args []string) error {
	first, before := map[string]time.Time{}, ""
	for {
		err := a.onCluster(nil, func(ctx context.Context, c *cluster.Cluster, _ []string) error {
			s, err := status.Run(ctx, c, nil)
			if err != nil {
				return err
			}
			rememberClosed(first, s)
			return showLook(a, s, &before)
		})(cmd, args)
		if err != nil {
			return err
		}
		select {
		case <-cmd.Context().Done():
			return context.Cause(cmd.Context())
		case <-time.After(watchInterval):
		}
	}
}

// rememberClosed adds when this watch first saw a gate closed, if no journal tells since when it is.
func rememberClosed(first map[string]time.Time, s status.Status) {
	for _, one := range s.Stages {
		for i, g := range one.Gates {
			key := one.Name + " " + g.Name
			if g.Open {
				delete(first, key)
				continue
			}
			if first[key].IsZero() {
				first[key] = time.Now()
			}
			if g.Since.IsZero() {
				one.Gates[i].Since = first[key]
			}
		}
	}
}

// showLook shows a look of --watch, unless it is as before. Ages alone are no change.
func showLook(a *app, s status.Status, before *string) error {
	now, err := json.Marshal(steady(s))
	if err != nil {
		return err
	}
	terminal := isTerminal(a.stdout) && a.output != "json"
	changed := string(now) != *before
	*before = string(now)
	switch {
	case terminal:
		fmt.Fprint(a.values, "\x1b[H\x1b[2J")
	case !changed:
		return nil
	case a.output == "json":
		return json.NewEncoder(a.stdout).Encode(s)
	default:
		fmt.Fprintf(a.stdout, "--- %s\n", localTime(time.Now()))
	}
	return a.print(s, func(w io.Writer) { printStatus(statusPage(a, w), s) })
}

// steady returns a status without what differs at each look.
func steady(s status.Status) status.Status {
	if s.Head.LastRun != nil {
		last := *s.Head.LastRun
		last.Seconds = 0
		s.Head.LastRun = &last
	}
	return s
}

// statusPage returns a page as wide as the terminal. Elsewhere a line has no end: programs read it.
func statusPage(a *app, w io.Writer) page { return page{w, ui.Columns(a.stdout, math.MaxInt32)} }

// printHead prints what concerns the whole cluster.
func printHead(p page, s status.Status) {
	row := func(name, text string) { // the lines of a text stand below each other
		const label = 17
		for i, part := range wrap(text, p.columns-label) {
			fmt.Fprintf(p.w, "%-*s%s\n", label, textIf(i == 0, name), strings.TrimLeft(part, " "))
		}
	}
	about := []string{s.Cluster + "/" + s.Platform}
	for _, version := range [][2]string{
		{"Kubernetes ", s.Head.Kubernetes}, {"Talos ", s.Head.Talos}, {"", s.Head.Endpoint},
	} {
		if version[1] != "" {
			about = append(about, version[0]+version[1])
		}
	}
	last := "none"
	if r := s.Head.LastRun; r != nil {
		last = lastRun(r)
		last += textIf(r.By != "", ", by "+r.By)
		last += textIf(r.Reason != "", ": "+foreign.OneLine(r.Reason))
	}
	words := map[string]string{status.True: "yes", status.False: "no", status.Undetermined: "unknown"}
	fmt.Fprintln(p.w, strings.Join(about, "   "))
	row("last run", last)
	for _, command := range s.Head.Next { // in one line, to paste it
		fmt.Fprintf(p.w, "%-17s%s\n", "next", foreign.OneLine(command))
	}
	for _, c := range []struct {
		name string
		is   status.Condition
	}{{"ready", s.Head.Ready}, {"changes pending", s.Head.Pending}, {"running", s.Head.Running}} {
		answer := words[c.is.Status] + ": "
		if c.name == "ready" && c.is.Status == status.True && s.Any(status.Absent) {
			answer = "" // the reason counts those that are ready
		}
		row(c.name, answer+foreign.OneLine(c.is.Reason))
	}
	fmt.Fprintln(p.w)
}

// printStatus prints the head, and the stages as a tree: layers, their stages, and below a stage its closed
// gates and whatever else needs a line. A reason that the row has no room for follows it.
func printStatus(p page, s status.Status) {
	printHead(p, s)
	gates := func(st status.StageStatus) string {
		open := 0
		for _, g := range st.Gates {
			if g.Open {
				open++
			}
		}
		return textIf(len(st.Gates) > 0, fmt.Sprintf("%d of %d open", open, len(st.Gates)))
	}
	var widths [3]int
	for _, st := range s.Stages {
		for i, cell := range []string{st.Name, st.State, gates(st)} {
			widths[i] = max(widths[i], len(cell))
		}
	}
	layer := ""
	for _, st := range s.Stages {
		if st.Layer != layer {
			layer = st.Layer
			fmt.Fprintln(p.w, layer)
		}
		reason, below := stageRemarks(st)
		row := fmt.Sprintf("  %-*s  %-*s  %-*s", widths[0], st.Name, widths[1], st.State,
			widths[2], gates(st))
		if len([]rune(row+"  "+reason)) <= p.columns {
			fmt.Fprintln(p.w, strings.TrimRight(row+"  "+reason, " "))
		} else {
			fmt.Fprintln(p.w, strings.TrimRight(row, " "))
			below = slices.Insert(below, 0, reason)
		}
		for _, text := range below {
			p.line(4, text)
		}
	}
	for _, u := range s.Unlisted {
		p.line(0, u.String())
	}
	for _, m := range s.Machines {
		for _, line := range m.Lines("castle create " + s.Cluster) {
			p.line(0, line)
		}
	}
	for _, text := range s.Certificates {
		p.line(0, text)
	}
	if s.Backup != nil {
		p.line(0, backupLine(s))
	}
	for _, d := range s.Data {
		p.line(0, dataLine(s, d))
	}
	writeUnknown(p.w, s.Unknown)
}

// backupLine tells how old the newest backup of etcd is.
func backupLine(s status.Status) string {
	switch b := s.Backup; {
	case b.Problem != "":
		return "whether etcd has a backup is unknown: " + foreign.OneLine(b.Problem)
	case b.ID == "":
		return "etcd has no backup; castle backup " + s.Cluster + " takes one"
	case b.Former:
		return fmt.Sprintf("etcd has no backup since the cluster was created anew; castle backup %s "+
			"takes one (the newest one, %s, is %s old)", s.Cluster, b.ID, ageOf(b.Time))
	default:
		return fmt.Sprintf("the newest backup of etcd is %s old (%s)", ageOf(b.Time), b.ID)
	}
}

// dataLine tells how old the newest save of data is.
func dataLine(s status.Status, d survival.Age) string {
	switch {
	case d.Problem != "":
		return fmt.Sprintf("whether data %s are saved is unknown: %s", d.Name, d.Problem)
	case d.Save == nil:
		return fmt.Sprintf("data %s were never saved; castle backup %s saves them", d.Name, s.Cluster)
	}
	return fmt.Sprintf("the newest save of data %s is %s old (%s)%s%s", d.Name, ageOf(d.Save.Time), d.Save.ID,
		textIf(d.Overdue, ", older than its rpo of "+d.RPO),
		textIf(d.Frozen, "; an unfinished destroy has ended all writes: castle create "+s.Cluster+
			" permits them"))
}

// stageRemarks returns why a stage is in its state, and what needs lines of its own.
func stageRemarks(st status.StageStatus) (reason string, below []string) {
	closed := slices.DeleteFunc(slices.Clone(st.Gates), func(g status.GateStatus) bool { return g.Open })
	reason = foreign.OneLine(st.Reason)
	switch recorded := slices.ContainsFunc(closed, func(g status.GateStatus) bool { return g.Recorded }); {
	case recorded && len(closed) == 1: // the reason already shows why
		reason += closedFor(closed[0])
	case recorded: // the stage failed for these gates, the first of which the reason names
		reason = ""
		fallthrough
	default:
		below = closedGates(closed)
	}
	if st.Refused != "" && !strings.Contains(st.Reason, st.Refused) {
		below = append(below, "the last run refused: "+foreign.OneLine(st.Refused))
	}
	for _, d := range st.Drifted {
		below = append(below, foreign.OneLine(d.String()))
	}
	return cmp.Or(reason, listIf("changed: ", st.Changed), st.Skipped), below
}

// closedGates returns a line for each reason why gates are closed. It shows the longest time.
func closedGates(closed []status.GateStatus) (lines []string) {
	names, first := map[string][]string{}, map[string]status.GateStatus{}
	var reasons []string
	for _, g := range closed {
		before, known := first[g.Reason]
		if !known {
			reasons = append(reasons, g.Reason)
		}
		if !known || g.Since.Before(before.Since) && !g.Since.IsZero() {
			first[g.Reason] = g
		}
		names[g.Reason] = append(names[g.Reason], g.Name)
	}
	for _, reason := range reasons {
		gates := strings.Join(names[reason], ", ")
		lines = append(lines, foreign.OneLine(gates+": "+reason+closedFor(first[reason])))
	}
	return lines
}

// closedFor says how long a gate is closed, as far as castle knows.
func closedFor(g status.GateStatus) string {
	switch {
	case !g.Since.IsZero():
		return " (closed for " + age(g.Since) + ")"
	case !g.LastOpen.IsZero():
		return " (open " + age(g.LastOpen) + " ago)"
	}
	return ""
}

// writeUnknown writes what a look for machines that the state does not know has found.
func writeUnknown(w io.Writer, found *unrecorded.Found) {
	if found != nil {
		fmt.Fprintln(w, strings.Join(found.Lines(), "\n"))
	}
}
