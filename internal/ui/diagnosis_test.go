package ui_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/ui"
)

func TestADiagnosisIsTheLinesThatMatter(t *testing.T) {
	now := time.Date(2026, 1, 2, 15, 4, 5, 0, time.Local)
	e := event.Event{Time: now, Kind: event.Diagnosed, Layer: "networking", Stage: "metallb", Diagnosis: &event.Diagnosis{
		Waited: "gate workload.speaker, for 5m0s: it is rolled out", Seen: "daemonset a/b: 0 of 1\npods", Since: now.Add(-90 * time.Second),
		Cause: "no node matches", Next: "KUBECONFIG=/k kubectl -n a describe daemonset b", Folder: "/runs/1/diagnosis/metallb",
	}}
	var w bytes.Buffer
	ui.NewLines(&w, false, false).Report(e)
	want := `    0.0s  networking/metallb         diagnosis in /runs/1/diagnosis/metallb
          waited for  gate workload.speaker, for 5m0s: it is rolled out
          seen        daemonset a/b: 0 of 1 pods
          since       15:02:35, 1m30s ago
          likely      no node matches
          next        KUBECONFIG=/k kubectl -n a describe daemonset b
`
	if w.String() != want {
		t.Errorf("got\n%s\nwant\n%s", w.String(), want)
	}
}

func TestAnUnknownCauseIsAdmitted(t *testing.T) {
	var w bytes.Buffer
	ui.NewLines(&w, false, false).Report(event.Event{
		Time: time.Now(), Kind: event.Diagnosed, Stage: "a", Diagnosis: &event.Diagnosis{Waited: "b", Seen: "c", Since: time.Now(), Folder: "d"},
	})
	if got := w.String(); !strings.Contains(got, "likely      no known cause") || strings.Contains(got, "next") {
		t.Errorf("got %s", got)
	}
}
