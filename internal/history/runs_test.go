package history_test

import (
	"testing"
	"time"

	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/history"
	"github.com/ephemeral-castle/castle/internal/state"
)

func TestTheResultOfARunComesFromItsJournal(t *testing.T) {
	began := time.Date(2026, 1, 7, 12, 0, 0, 0, time.UTC)
	ended := func(text string, e *event.Ending) event.Event {
		return event.Event{Time: began.Add(time.Minute), Kind: event.RunEnded, Text: text, Ending: e}
	}
	for name, test := range map[string]struct {
		last   event.Event
		result history.Result
		reason string
		resume string
	}{
		"refused": {ended("text", &event.Ending{Result: event.OutcomeRefused, ExitCode: 4,
			Causes: []event.Cause{{Text: "VM 423 is foreign", Stages: []string{"machines"}}}}),
			history.Refused, "machines: VM 423 is foreign", ""},
		"killed": {event.Event{Time: began.Add(time.Minute), Kind: event.StepStarted}, history.Died, "",
			"castle create blue"},
	} {
		t.Run(name, func(t *testing.T) {
			dir, err := state.Open(t.TempDir(), "blue", "proxmox")
			if err != nil {
				t.Fatal(err)
			}
			j, err := dir.NewRun("create").Journal()
			if err != nil {
				t.Fatal(err)
			}
			first := event.Event{Time: began, Kind: event.RunStarted, By: "ada@forge",
				Command: "castle create blue"}
			for _, e := range []event.Event{first, {Time: began, Kind: event.Notice}, test.last} {
				if err := j.Append(e); err != nil {
					t.Fatal(err)
				}
			}
			if err := j.Close(); err != nil {
				t.Fatal(err)
			}
			newest, change, err := history.Last(dir, nil)
			if err != nil || newest == nil || newest != change {
				t.Fatalf("got %v, %v, %v", newest, change, err)
			}
			if newest.Result != test.result || newest.Reason != test.reason || newest.Resume != test.resume {
				t.Errorf("got %s (%s, %q), want %s (%s, %q)", newest.Result, newest.Reason, newest.Resume,
					test.result, test.reason, test.resume)
			}
			if newest.By != "ada@forge" || newest.Seconds != 60 || newest.Command != "create" {
				t.Errorf("got %+v", *newest)
			}
		})
	}
}

func TestTheHolderOfTheLockIsRunning(t *testing.T) {
	dir, err := state.Open(t.TempDir(), "blue", "proxmox")
	if err != nil {
		t.Fatal(err)
	}
	run := dir.NewRun("plan")
	j, err := run.Journal()
	if err == nil {
		err = j.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	newest, change, err := history.Last(dir, &state.HeldError{Run: run.ID})
	if err != nil || newest == nil || newest.Result != history.Running || change != nil {
		t.Errorf("got %+v, %v, %v; a plan changes nothing", newest, change, err)
	}
}
