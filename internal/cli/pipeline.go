package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/operation/status"
	"github.com/ephemeral-castle/castle/internal/process"
	"github.com/ephemeral-castle/castle/internal/report"
)

// runWatch notes the id of the run that it passes on, and puts its progress into a section of the log.
type runWatch struct {
	app      *app
	next     cluster.Reporter
	pipeline report.Pipeline
	title    string
}

// Report passes an event on.
func (w *runWatch) Report(e event.Event) {
	if e.Kind == event.RunStarted {
		w.app.run, w.title = e.Run, "castle "+e.Text
		w.pipeline.OpenSection(w.app.commands, w.title, e.Time)
	}
	w.next.Report(e)
	if e.Kind == event.RunEnded {
		w.pipeline.CloseSection(w.app.commands, w.title, e.Time)
	}
}

// values returns stdout for a value or a file: a program must get it unchanged, a terminal must not obey it.
func values(a *app) io.Writer {
	if isTerminal(a.stdout) {
		return a.stdout
	}
	return a.values
}

// findPipeline returns the system whose job castle runs in.
func findPipeline(a *app) report.Pipeline {
	return report.FindPipeline(func(name string) string { return process.Getenv(a.environ, name) })
}

// junitFile is where GitLab's jobs find the report, relative to CI_PROJECT_DIR.
const junitFile = "castle-junit.xml"

// tellPipeline hands a report to the pipeline: failed stages with their lines, the page of the job, and
// values for later steps. An error is a note, and does not change how the run ended.
func tellPipeline(a *app, c *cluster.Cluster, pipeline report.Pipeline, r *report.Report) {
	err := tellReport(a, pipeline, r)
	if pipeline == report.GitHub {
		for _, one := range r.Annotations(func(stage string) (string, int) { return place(a, c, stage) }) {
			pipeline.Annotate(a.commands, one)
		}
		outputs := process.Getenv(a.environ, "GITHUB_OUTPUT")
		err = errors.Join(err, appendTo(outputs, r.Outputs(endpoint(c, r.Kind))))
		if c.Copy != nil { // for CASTLE_STATE_AT_LEAST of later jobs
			err = errors.Join(err, appendTo(outputs, fmt.Sprintf("state_commit=%d\n", c.Copy.Log().Newest())))
		}
	}
	if err != nil {
		fmt.Fprintln(a.stderr, "castle: note: the pipeline gets no report:", err)
	}
}

// tellReport writes the page of the job, or its test results.
func tellReport(a *app, pipeline report.Pipeline, r *report.Report) error {
	var page strings.Builder
	summary := process.Getenv(a.environ, "GITHUB_STEP_SUMMARY")
	folder := process.Getenv(a.environ, "CI_PROJECT_DIR")
	switch {
	case pipeline == report.GitHub:
		err := r.WriteMarkdown(&page)
		return errors.Join(err, appendTo(summary, report.Cut(page.String()+"\n", summaryRoom(summary))))
	case pipeline == report.GitLab && folder != "":
		return writeReport(r, filepath.Join(folder, junitFile), "junit")
	}
	return nil
}

// mostSummary is how much GitHub shows of a step's page; it shows nothing of a longer one.
const mostSummary = 1 << 20

// summaryRoom returns how many bytes the page of the step has left.
func summaryRoom(file string) int {
	used := 0
	if info, err := os.Stat(file); err == nil {
		used = int(info.Size())
	}
	return mostSummary - used
}

// appendTo appends to a file of the job; without a name there is none.
func appendTo(file, text string) (err error) {
	if file == "" {
		return nil
	}
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	_, err = f.WriteString(text)
	return err
}

// endpoint is the address of the cluster's API after a create, if a stage has it as an output.
func endpoint(c *cluster.Cluster, kind string) string {
	if kind == "destroy" {
		return ""
	}
	outputs, err := status.Outputs(c)
	if err != nil {
		return ""
	}
	for _, o := range outputs {
		known := !o.Value.IsNull() && o.Value.IsWhollyKnown() && o.Value.Type() == cty.String
		if o.Layer == "platform" && o.Name == "cluster_endpoint" && !o.Sensitive && known {
			return o.Value.AsString()
		}
	}
	return ""
}

// place returns the line of cluster.hcl that lists a stage.
func place(a *app, c *cluster.Cluster, stage string) (string, int) {
	for _, s := range c.Config.Stages {
		if s.Name == stage && c.InvalidConfig == nil {
			return inCheckout(a, s.At().Filename), s.At().Start.Line
		}
	}
	return "", 0
}

// annotate writes the problems of a configuration for the pipeline.
func annotate(a *app, diags hcl.Diagnostics) {
	pipeline := findPipeline(a)
	for _, d := range diags {
		one := report.Annotation{Warning: d.Severity == hcl.DiagWarning, Title: d.Summary, Text: d.Detail}
		if one.Text == "" {
			one.Text = d.Summary
		}
		if d.Subject != nil {
			one.File, one.Line = inCheckout(a, d.Subject.Filename), d.Subject.Start.Line
		}
		pipeline.Annotate(a.commands, one)
	}
}

// inCheckout returns a file's path relative to the checkout of the job, as annotations need it.
func inCheckout(a *app, file string) string {
	whole, err := filepath.Abs(file)
	if err != nil {
		return file
	}
	relative, err := filepath.Rel(process.Getenv(a.environ, "GITHUB_WORKSPACE"), whole)
	if err != nil || !filepath.IsLocal(relative) {
		return file
	}
	return relative
}
