//go:build integration

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/ephemeral-castle/castle/internal/event"
)

// TestFaults raises the cluster trio once, with every fault that delays a gate,
// and holds what castle's journal says against what the lab's log says of each.
func TestFaults(t *testing.T) {
	if here := os.Getenv(inLab); here != "" {
		t.Chdir(here)
		commands := map[string]func(*testscript.TestScript, bool, []string){"fault": faulted}
		run(t, "testdata/faults", func(env *testscript.Env) error {
			return likeTheLab(env, "testdata/trio")
		}, commands)
		return
	}
	args := []string{"-C", "testdata/trio", "trio"}
	// Each lasts, from the gate's first question, longer than a gate may pause between
	// two, if nothing in the API tells it of a change.
	for _, fault := range []string{
		"etcd-learner=7s", "vip-moves=300ms", "api-restarts=300ms",
		"crd-absent=4s", "daemonset-no-node=5s", "webhook-late=7s", "webhook-refuses=7s",
		"cabundle-empty=4s", "ca-expired=4s", "conditions-none=5s", "kustomization-frozen=1",
	} {
		args = append(args, "--fault", fault)
	}
	rehearse(t, nil, args...)
}

const (
	// soon is how long a gate may take to notice: the longest pause between two
	// questions, and three times as long again for a machine with better things to do.
	soon = 20 * time.Second
	// inFlight is how long an answer may be under way that was given before, on a machine under load.
	inFlight = time.Second
)

// faulted says what a fault has done to a gate: fault NAME STAGE GATE WORDS [NEXT].
//
// While the fault held the gate was closed, at some time with these words.
// Soon after it the gate opened, or was closed with the words that come next.
func faulted(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 4 || len(args) > 5 {
		ts.Fatalf("usage: fault name stage gate words [next-words]")
	}
	begins, ends := spell(ts, args[0])
	answers := answersOf(ts, args[1], args[2])
	story := &strings.Builder{}
	for _, a := range answers {
		fmt.Fprintf(story, "\n%s %s %s", a.Time.Format(time.StampMilli), a.Kind, a.Text)
	}
	fail := func(what string) {
		ts.Fatalf("%s, from %s to %s: %s; its answers:%s", args[0], begins.Format(time.StampMilli),
			ends.Format(time.StampMilli), what, story)
	}
	words, matched := regexp.MustCompile(args[3]), false
	seen := false // whether the gate had been open before
	for i, a := range answers {
		until := ends.Add(soon)
		if i+1 < len(answers) {
			until = answers[i+1].Time
		}
		switch {
		case a.Kind == event.GateOpen && !a.Time.After(begins):
			seen = true
		case a.Kind == event.GateOpen && !a.Time.After(begins.Add(inFlight)):
			// It may have been read before the fault, or after a momentary one.
		case a.Kind == event.GateOpen && a.Time.Before(ends):
			fail("the gate opened meanwhile")
		case a.Kind == event.GateClosed && until.After(begins) &&
			(a.Time.Before(ends) || momentary(begins, ends)):
			matched = matched || words.MatchString(a.Text)
		}
	}
	// A gate whose first check follows a momentary fault does not see the fault.
	if !matched && (seen || !momentary(begins, ends)) {
		fail("no answer of the gate matches " + args[3])
	}
	next := slices.IndexFunc(answers, func(a event.Event) bool {
		return !a.Time.Before(ends) && (len(args) == 4 && a.Kind == event.GateOpen || len(args) == 5 &&
			regexp.MustCompile(args[4]).MatchString(a.Text))
	})
	if next < 0 {
		fail("the gate did not go on")
	}
	// What the fault delayed may take its time on a busy machine: each answer until then comes soon.
	for last, i := ends, 0; i <= next; i++ {
		switch at := answers[i].Time; {
		case at.Before(ends):
		case at.Sub(last) > soon:
			fail("the gate did not go on soon")
		default:
			last = at
		}
	}
	ts.Logf("%s: %s late", args[0], answers[next].Time.Sub(ends).Round(time.Millisecond))
}

// momentary is a fault that is over at once.
func momentary(begins, ends time.Time) bool { return ends.Sub(begins) < inFlight }

// spell reads in the lab's log when a fault was there.
func spell(ts *testscript.TestScript, name string) (begins, ends time.Time) {
	content, err := os.ReadFile(filepath.Join(ts.Getenv("CASTLE_STATE_DIR"), "..", "datacenter.log"))
	ts.Check(err)
	log := string(content)
	find := func(pattern string) string {
		found := regexp.MustCompile(`(?m)` + pattern).FindStringSubmatch(log)
		if found == nil {
			ts.Fatalf("the lab's log lacks %s:\n%s", pattern, log)
		}
		return found[1]
	}
	clock, err := time.Parse(time.RFC3339Nano, find(`the clock starts at (\S+)$`))
	ts.Check(err)
	var at [2]time.Duration
	for i, word := range []string{"begins", "ends"} {
		at[i], err = time.ParseDuration(find(`^ *(\d+\.\d+s) fault ` + name + ": " + word + "$"))
		ts.Check(err)
	}
	return clock.Add(at[0]), clock.Add(at[1])
}

// answersOf reads in the journal what a gate has answered.
func answersOf(ts *testscript.TestScript, stage, gate string) []event.Event {
	journals, err := filepath.Glob(filepath.Join(ts.Getenv("CASTLE_STATE_DIR"),
		"*/*/runs/*-create-*/journal.jsonl"))
	ts.Check(err)
	if len(journals) != 1 {
		ts.Fatalf("there are %d journals", len(journals))
	}
	content, err := os.ReadFile(journals[0])
	ts.Check(err)
	var all []event.Event
	for lines := bufio.NewScanner(bytes.NewReader(content)); lines.Scan(); {
		var e event.Event
		ts.Check(json.Unmarshal(lines.Bytes(), &e))
		if e.Stage == stage && e.Gate == gate && (e.Kind == event.GateClosed || e.Kind == event.GateOpen) {
			all = append(all, e)
		}
	}
	return all
}
