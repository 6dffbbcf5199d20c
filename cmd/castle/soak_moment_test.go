//go:build integration

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ephemeral-castle/castle/internal/event"
)

// moment is when castle is killed.
type moment struct {
	name    string
	seam    string // empty if it is a moment of the time
	reached func(*attempt) bool
}

// seams are where one thing has been done and the next has not: a line of the
// journal, or a file of the state directory that appears, changes or goes.
var seams = map[string][]string{
	"create": {
		"run_started", "stage_started", "step_started preflight", "step_started adopt", "step_started import",
		"step_started plan", "step_ended plan",
		"step_started apply", "resource_started", "resource", "step_ended apply", "gate_open", "stage_ready",
		"stages/*/terraform.tfstate", "stages/*/intent.jsonl", "stages/*/snapshots/*", "stages/*/module*",
		"stages/*/record.json",
		"stages/*/fingerprint.json", "stages/*/revisions.json",
		"stages/*/work/*.tfplan", "stages/*/work/.terraform/*",
		"kubeconfig", "lock",
	},
	"destroy": {
		"run_started", "stage_started", "step_started destroy", "resource_started", "resource",
		"step_ended destroy", "step_ended proof", "stage_gone",
		"stages/*/terraform.tfstate", "stages/*/intent.jsonl", "stages/*/snapshots/*", "stages/*",
		"archive/*", "runs/*/receipt.json", "kubeconfig", "lock",
	},
	"backup": {"backups/*/0000", "backups/*/manifest", "backups/*"},
	"restore": {
		"run_started", "notice", "restore.json*", "stage_started", "step_started apply", "resource_started",
		"resource", "step_ended apply", "gate_open", "stage_ready", "stages/*/terraform.tfstate",
		"stages/*/intent.jsonl", "stages/*/fingerprint.json", "lock",
	},
	"recreate": {
		"run_started", "notice", "births.json*", "recreate.json*", "stage_started", "step_started destroy",
		"stage_gone", "archive/*", "runs/*/receipt.json", "step_started apply", "resource",
		"step_ended apply", "gate_open", "stage_ready", "stages/*/terraform.tfstate",
		"stages/*/fingerprint.json", "kubeconfig", "lock",
	},
	"rollout": {
		"run_started", "machine_started", "machine_progress", "machine_progress install", "machine_ready",
		"stage_started", "step_started plan", "step_ended plan", "step_started apply", "resource_started",
		"resource", "step_ended apply", "stage_ready",
		"stages/*/terraform.tfstate", "stages/*/intent.jsonl", "stages/*/snapshots/*", "stages/*/installed*",
		"stages/*/record.json", "stages/*/fingerprint.json", "stages/*/work/*.tfplan", "lock",
	},
}

// moment draws one: any moment of the time that the command has still to go, or a seam.
func (k *soak) moment(command string, rest time.Duration) moment {
	if k.rand.IntN(2) == 0 {
		after := upTo(k.rand, rest)
		reached := func(a *attempt) bool { return time.Since(a.began) >= after }
		return moment{name: "after " + after.Round(time.Millisecond).String(), reached: reached}
	}
	name := seams[command][k.rand.IntN(len(seams[command]))]
	passed := k.files.lines(name)
	if strings.Contains(name, "/") || name == "kubeconfig" || name == "lock" {
		passed = k.files.changes(name)
	}
	nth, pause := 1+k.rand.IntN(3), time.Duration(0)
	if k.rand.IntN(2) == 0 {
		pause = upTo(k.rand, 100*time.Millisecond)
	}
	var since time.Time
	return moment{fmt.Sprintf("%s, time %d, +%s", name, nth, pause.Round(time.Millisecond)), name,
		func(*attempt) bool {
			if since.IsZero() && passed() >= nth {
				since = time.Now()
			}
			return !since.IsZero() && time.Since(since) >= pause
		}}
}

// await reports whether the moment came before castle had ended.
func (k *soak) await(a *attempt, m moment) bool {
	came := false
	eventually(soakPatience, time.Millisecond, func() bool {
		select {
		case <-a.ended:
			return true
		default:
			came = m.reached(a)
			return came
		}
	})
	return came // complete reports a castle that hangs
}

// lines counts the lines of a kind, and of a step, in the next run's journal.
func (f *soakFiles) lines(kind string) func() int {
	before, began := f.newestRun(), time.Now()
	return func() int {
		count := 0
		for _, e := range f.journal(before) {
			if e.Time.Before(began) {
				continue // of a run that a new machine has read about
			}
			if words := string(e.Kind) + " " + e.Step; words == kind || string(e.Kind) == kind {
				count++
			}
		}
		return count
	}
}

// journal is what the newest run has written, unless that is the one before.
func (f *soakFiles) journal(before string) (events []event.Event) {
	run := f.newestRun()
	if run == before {
		return nil
	}
	content, err := os.ReadFile(filepath.Join(run, "journal.jsonl"))
	if err != nil {
		return nil // it begins just now
	}
	for line := range bytes.Lines(content) {
		var e event.Event
		if json.Unmarshal(line, &e) == nil {
			events = append(events, e)
		}
	}
	return events
}

// changes counts how often one of these files has come, changed or gone.
func (f *soakFiles) changes(pattern string) func() int {
	look := func() map[string]time.Time {
		there := map[string]time.Time{}
		paths, err := filepath.Glob(filepath.Join(f.state, pattern))
		must(f.t, err)
		for _, path := range paths {
			if info, err := os.Lstat(path); err == nil {
				there[path] = info.ModTime()
			}
		}
		return there
	}
	last, count := look(), 0
	return func() int {
		now := look()
		for path, at := range now {
			if was, there := last[path]; !there || !was.Equal(at) {
				count++
			}
		}
		for path := range last {
			if _, there := now[path]; !there {
				count++
			}
		}
		last = now
		return count
	}
}
