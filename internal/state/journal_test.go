package state

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ephemeral-castle/castle/internal/atomicfile"
	"github.com/ephemeral-castle/castle/internal/event"
)

func TestJournalReadsBackWithoutATornLastLine(t *testing.T) {
	d := open(t)
	run := d.NewRun("create")
	if _, err := run.Events(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("before: %v", err)
	}
	j, err := run.Journal()
	if err != nil {
		t.Fatal(err)
	}
	want := []event.Event{{Kind: event.RunStarted, Run: run.ID},
		{Kind: event.Resource, Stage: "platform", Address: `a.b["k"]`, Seconds: 1.5}}
	for _, e := range want {
		if err := j.Append(e); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(run.journalPath(), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"kind":"stage_rea`); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := d.Run(run.ID).Events()
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestJournalWithGarbageInTheMiddleIsAnErrorWithTheLine(t *testing.T) {
	run := open(t).Run("r")
	if err := atomicfile.MkdirPrivate(run.dir); err != nil {
		t.Fatal(err)
	}
	write(t, run.journalPath(), []byte("{\"kind\":\"run_started\"}\nnonsense\n{}\n"))
	if _, err := run.Events(); err == nil || !strings.Contains(err.Error(), "journal.jsonl:2:") {
		t.Errorf("got %v", err)
	}
}

func TestJournalAppendsConcurrentEvents(t *testing.T) {
	run := open(t).Run("r")
	j, err := run.Journal()
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 25 {
				e := event.Event{Kind: event.Notice, Text: strings.Repeat("x", 3000)}
				if err := j.Append(e); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if events, err := run.Events(); err != nil || len(events) != 200 {
		t.Errorf("%d events, %v", len(events), err)
	}
}

func TestARunWithoutOutputLeavesNothing(t *testing.T) {
	d := open(t)
	var want []string
	for _, kind := range []string{"create", "unused", "destroy"} {
		run := d.NewRun(kind)
		if !strings.Contains(run.ID, "-"+kind+"-") {
			t.Errorf("id %q does not contain %s", run.ID, kind)
		}
		if kind == "unused" {
			continue
		}
		want = append(want, run.ID)
		log, err := run.Log("platform")
		if err != nil {
			t.Fatal(err)
		}
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := os.ReadDir(d.runs())
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, e := range entries {
		ids = append(ids, e.Name())
	}
	slices.Sort(want)
	if !slices.Equal(ids, want) {
		t.Errorf("got %q, want %q", ids, want)
	}
}
