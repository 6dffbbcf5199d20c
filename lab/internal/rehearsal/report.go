package rehearsal

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/folders"
	"github.com/ephemeral-castle/castle/internal/history"
	"github.com/ephemeral-castle/castle/internal/operation/topology"
	runreport "github.com/ephemeral-castle/castle/internal/report"
	"github.com/ephemeral-castle/castle/stages"
	"github.com/ephemeral-castle/castle/templates"
)

// notProven ends each summary: a rehearsal does not test these.
const notProven = "The lab does not prove Talos itself, images, CNI, kube-proxy, kubelets, the " +
	"upstream charts, ARP and real disks."

// report is the content of --report.
type report struct {
	Result string        `json:"result"` // ok or failed
	Steps  []reportStep  `json:"steps"`
	Stages []reportStage `json:"stages"` // of the first run
	// Run is the newest create of all stages as castle graph shows it, in the same
	// fields (docs/graph.md); null if there was none.
	Run       *topology.Run `json:"run"`
	Leftovers []string      `json:"leftovers"`
}

type reportStep struct {
	Command string  `json:"command"`
	Exit    int     `json:"exit"`
	Seconds float64 `json:"seconds"`
}

type reportStage struct {
	Name         string    `json:"name"`
	Layer        string    `json:"layer"`
	Result       string    `json:"result"`
	ApplySeconds float64   `json:"apply_seconds"`
	GateSeconds  float64   `json:"gate_seconds"`
	Started      time.Time `json:"started"`
	Ended        time.Time `json:"ended"`
}

func (r *report) write(path string) error {
	content, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(content, '\n'), 0o600)
}

// publishable writes the content of --report: castle's report on the first run, if the extension of the file
// names another format than JSON.
func (r *round) publishable(path string) error {
	format, err := runreport.FormatOf(r.plan.Options.Report)
	if err != nil || format == "json" {
		return r.report.write(path)
	}
	runs, err := r.runs()
	if err != nil {
		return err
	}
	if len(runs) == 0 {
		return errors.New("report: castle has run nothing that it could report on")
	}
	var steps []runreport.Step
	if measured := r.report.Run; measured != nil && measured.ID == runs[0][0].Run {
		steps = measured.CriticalPath
	}
	first := runreport.New(runs[0], steps)
	var content bytes.Buffer
	if err := first.Write(&content, format); err != nil {
		return err
	}
	return os.WriteFile(path, content.Bytes(), 0o600)
}

func seconds(d time.Duration) float64 { return math.Round(d.Seconds()*100) / 100 }

// runs are the events of every run of castle in this rehearsal, oldest first.
func (r *round) runs() ([][]event.Event, error) {
	files, err := filepath.Glob(r.plan.path("state", r.plan.Survey.Name, r.plan.Survey.Platform, "runs", "*",
		"journal.jsonl"))
	if err != nil {
		return nil, err
	}
	var all [][]event.Event
	for _, f := range files {
		content, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		var events []event.Event
		for lines := bufio.NewScanner(bytes.NewReader(content)); lines.Scan(); {
			var e event.Event
			if json.Unmarshal(lines.Bytes(), &e) == nil { // a torn last line is no event
				events = append(events, e)
			}
		}
		if len(events) != 0 {
			all = append(all, events)
		}
	}
	slices.SortFunc(all, func(a, b []event.Event) int { return a[0].Time.Compare(b[0].Time) })
	return all, nil
}

// readStages takes the stages from the first run, which is the one that raised
// the cluster, or tried to.
func (r *round) readStages() error {
	runs, err := r.runs()
	if err != nil || len(runs) == 0 {
		return err
	}
	for _, s := range history.Fold(runs[0]).Whole.Stages {
		r.report.Stages = append(r.report.Stages, reportStage{
			Name: s.Stage, Layer: s.Layer, Result: string(s.Result),
			ApplySeconds: seconds(s.Took(history.Named("apply"))),
			GateSeconds:  seconds(s.Took(history.Named("gates"))),
			Started:      s.Started, Ended: s.Ended,
		})
	}
	return nil
}

// readRun reads the durations and the critical path of the newest create.
func (r *round) readRun() error {
	runs, err := r.runs()
	if err != nil || len(runs) == 0 {
		return err
	}
	repository, err := folders.Find(r.plan.Options.Directory)
	if err != nil {
		return err
	}
	g, err := topology.Build(context.Background(), cluster.Options{
		Repository: repository, Cluster: r.plan.Survey.Name + "/" + r.plan.Survey.Platform,
		Environ: r.environ,
		Library: stages.Library, Templates: templates.Files,
	})
	if err != nil {
		return err
	}
	r.report.Run = g.Run
	return nil
}

// changedAgain returns the resources that the last run changed.
func (r *round) changedAgain() ([]string, error) {
	runs, err := r.runs()
	if err != nil {
		return nil, err
	}
	if len(runs) < 2 {
		return nil, errors.New("the second create wrote no journal")
	}
	var changed []string
	for _, e := range runs[len(runs)-1] {
		if e.Kind == event.Resource && e.Action != "" && e.Action != "read" && e.Action != "no-op" {
			changed = append(changed, e.Stage+" "+e.Address)
		}
	}
	return changed, nil
}

// summary prints the rehearsal's result; castle itself has printed the stages.
func (r *round) summary(left, missing []string) {
	t := tabwriter.NewWriter(r.stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "\n")
	for _, s := range r.report.Steps {
		fmt.Fprintf(t, "%.1fs\texit %d\t %s\n", s.Seconds, s.Exit, s.Command)
	}
	t.Flush() //nolint:errcheck // stdout; there is nowhere to say it
	if r.report.Run != nil {
		fmt.Fprintf(r.stdout, "\n%s\n", strings.Join(r.report.Run.Lines(), "\n"))
	}
	fmt.Fprintf(r.stdout, "\nLeft over: %s\n", list(left))
	if len(missing) != 0 {
		fmt.Fprintf(r.stdout, "Missing: %s\n", list(missing))
	}
	fmt.Fprintln(r.stdout, notProven)
}

func list(all []string) string {
	if len(all) == 0 {
		return "nothing"
	}
	return strings.Join(all, ", ")
}
