package waves

import (
	"github.com/ephemeral-castle/castle/internal/event"
)

// Stages passes the events of a run over many clusters on as those of a run over stages, for the view and the
// report: a wave is a layer, a cluster is a stage of it, and a stage of the cluster a resource.
type Stages struct {
	Next    func(event.Event)
	Command string

	total map[string]int // stages, by cluster
}

// Report passes an event on.
func (s *Stages) Report(e event.Event) {
	of := event.Event{Time: e.Time, Run: e.Run, Layer: e.Wave, Stage: e.Cluster, Text: e.Text}
	send := func(kind event.Kind) { of.Kind = kind; s.Next(of) }
	switch {
	case e.Kind == event.ClusterStarted:
		of.Text = ""
		send(event.StageStarted)
		of.Step = s.Command
		send(event.StepStarted)
	case e.Kind == event.ClusterEnded:
		of.Seconds, of.Step, of.Text = e.Seconds, s.Command, ""
		send(event.StepEnded)
		of.Step, of.Text = "", e.Text
		send(s.ended(e))
	case e.Kind == event.ClusterSkipped:
		send(event.StageSkipped)
	case e.Kind == event.WaveStarted: // its clusters show it
	case e.Kind == event.WaveApproved:
		of.Layer, of.Text = "", "wave "+e.Wave+": approved by "+e.By
		send(event.Notice)
	case e.Kind == event.WaveEnded:
		of.Layer, of.Text = "", "wave "+e.Wave+": "+e.Text
		send(event.Notice)
	case e.Cluster == "":
		s.Next(e)
	default:
		s.stage(e, of)
	}
}

// ended is how a cluster ends as a stage.
func (s *Stages) ended(e event.Event) event.Kind {
	switch {
	case e.Ending.Result == event.OutcomeInterrupted:
		return event.StageStopped
	case e.Ending.Result != event.OutcomeSucceeded:
		return event.StageFailed
	case s.Command == "destroy":
		return event.StageGone
	}
	return event.StageReady
}

// stage passes on what happens to a stage of a cluster.
func (s *Stages) stage(e, of event.Event) {
	if e.Kind == event.StagesSelected && e.Selection != nil {
		if s.total == nil {
			s.total = map[string]int{}
		}
		s.total[e.Cluster] = len(e.Selection.Stages)
	}
	if e.Stage == "" {
		return
	}
	of.Address, of.Action = e.Layer+"/"+e.Stage, s.Command
	if e.Kind == event.StageStarted {
		of.Kind, of.Text, of.Total = event.ResourceStarted, "", s.total[e.Cluster]
		s.Next(of)
	}
	if result, ends := e.Kind.Ends(); ends {
		of.Kind, of.Text, of.Seconds = event.Resource, string(result), e.Seconds
		if result == event.ResultUpToDate { // no report counts it as changed
			of.Action, of.Text = "read", "up to date"
		}
		s.Next(of)
	}
}
