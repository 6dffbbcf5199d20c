package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ephemeral-castle/castle/internal/atomicfile"
	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/history"
	"github.com/ephemeral-castle/castle/internal/operation/topology"
	"github.com/ephemeral-castle/castle/internal/report"
	"github.com/ephemeral-castle/castle/internal/state"
)

// mostEarlier is how many earlier runs of the same kind a report compares a run with.
const mostEarlier = 20

func newReport(a *app) *cobra.Command {
	id, format := "", ""
	cmd := a.valueFlags(&cobra.Command{
		Use:   "report CLUSTER",
		Short: "Report on a run: timeline, critical path, slow parts, causes",
		Long: `Report on the newest run that could change a cluster, or on the run --run, from its
journal: counts, a timeline in which Terraform and the gates are apart, the critical path,
the slowest resources, retries, and why the run failed. castle compares the durations
with the median of the earlier runs of the same kind that the state directory keeps.

--format html writes one page that loads nothing from elsewhere, and junit a file that
pipelines show as tests: a suite per stage, with its steps and gates. The command locks and
changes nothing, and contacts nothing but the store of the states, if there is one.`,
		Example: `  castle report blue
  castle report blue --format html > report.html`,
		Args: a.oneCluster(),
		PreRunE: func(*cobra.Command, []string) error {
			if format != "" && !slices.Contains(report.Formats(), format) {
				return refuse("--format %q: choose one of %s%s", format, strings.Join(report.Formats(), ", "),
					nearestName(format, report.Formats()))
			}
			return nil
		},
		RunE: a.onRecorded(nil, func(ctx context.Context, c *cluster.Cluster, _ []string) error {
			format = cmp.Or(format, a.output)
			reported, err := reportedRun(c, id)
			if err != nil {
				return err
			}
			r, err := makeReport(c, reported)
			run, unread := history.Of(c.Dir.Run(reported), cluster.Holder(ctx, c))
			if err = cmp.Or(err, unread); err != nil {
				return err
			}
			r.Resume = run.Resume            // of a run that was killed, too
			return r.Write(a.values, format) // which has made the texts visible
		}),
	})
	cmd.Flags().StringVar(&id, "run", "",
		"report on the run `ID`, or on the newest one of a kind, such as plan")
	cmd.Flags().StringVar(&format, "format", "", "text, markdown, html, json or junit (default text)")
	return cmd
}

// reportedRun returns the run with an id, or the newest one of a kind; "" is the newest one whose command
// changes the cluster, or else the newest of all.
func reportedRun(c *cluster.Cluster, wanted string) (string, error) {
	ids, err := c.Dir.Runs()
	if err != nil {
		return "", err
	}
	newest := ""
	for _, id := range ids {
		if wanted == id {
			return id, nil
		}
		if _, err := c.Dir.Run(id).Events(); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		kind := state.RunKind(id)
		if wanted == kind || wanted == "" && (history.Run{Command: kind}).Changes() {
			return id, nil
		}
		newest = cmp.Or(newest, id)
	}
	switch {
	case wanted == "" && newest != "":
		return newest, nil
	case wanted == "":
		return "", refuse("%s has no run in %s", c.Name(), c.Dir.Path())
	}
	return "", refuse("%s has no run %q; it has %s", c.Name(), wanted, strings.Join(ids, ", "))
}

// makeReport reads the journals of a run and of the earlier ones of its kind. A journal that cannot be read
// is left out of the comparison.
func makeReport(c *cluster.Cluster, id string) (*report.Report, error) {
	events, err := c.Dir.Run(id).Events()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, refuse("the run %s has no journal", id)
	}
	if err != nil {
		return nil, err
	}
	kind := state.RunKind(id)
	var path []report.Step
	if c.InvalidConfig == nil {
		if path, err = topology.CriticalPath(kind, events, c.Config); err != nil {
			return nil, err
		}
	}
	r := report.New(events, path, history.Earlier(c.Dir, id, mostEarlier, kind)...)
	return &r, nil
}

// reportFlag adds the flag of a command that may write the report of its run.
func reportFlag(a *app, cmd *cobra.Command) {
	cmd.Flags().StringVar(&a.reportFile, "report", "",
		"write a report on the run to `FILE`: .txt, .md, .html, .json or .xml (JUnit)")
}

// reporting runs an operation and then reports on its run: the timeline, the file of --report, and what a
// pipeline reads. It refuses a file that it could not write before the run.
func reporting(a *app, c *cluster.Cluster, operate func() error) error {
	format, err := reportFormat(a)
	if err != nil {
		return err
	}
	err = operate()
	a.timeline()
	pipeline := findPipeline(a)
	if a.run == "" || a.reportFile == "" && pipeline == report.NoPipeline {
		return err
	}
	r, unread := makeReport(c, a.run)
	if unread != nil {
		return errors.Join(err, fmt.Errorf("report: %w", unread))
	}
	if a.reportFile != "" {
		err = errors.Join(err, writeReport(r, a.reportFile, format))
	}
	tellPipeline(a, c, pipeline, r)
	return err
}

// reportFormat returns the format of --report's file, which castle must be able to write; "" without one.
func reportFormat(a *app) (string, error) {
	if a.reportFile == "" {
		return "", nil
	}
	format, err := report.FormatOf(a.reportFile)
	if err != nil {
		return "", refuse("--report %v", err)
	}
	if folder, err := os.Stat(filepath.Dir(a.reportFile)); err != nil || !folder.IsDir() {
		return "", refuse("--report %s: the folder does not exist", a.reportFile)
	}
	return format, nil
}

// writeReport writes a report for whoever may read the folder: it holds no secret.
func writeReport(r *report.Report, file, format string) error {
	var content strings.Builder
	if err := r.Write(&content, format); err != nil {
		return err
	}
	return atomicfile.WriteMode(file, []byte(content.String()), 0o644)
}
