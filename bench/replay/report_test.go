package main

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"
)

// example is a cluster of four stages. castle takes 60 seconds: secrets 10, platform 30, storage 20, and the
// pool beside it 5. Layer by layer that is the same. The script takes 90.
func example(t *testing.T) measured {
	t.Helper()
	at := func(seconds int) time.Time { return time.Unix(int64(seconds), 0) }
	m := measured{options: options{cluster: "blue", speed: "1"}, load: "0.1 0.2 0.3", script: []step{
		{Stage: "store", Layer: "secrets", Began: at(0), Ended: at(15), Init: 2, Apply: 13},
		{Stage: "machines", Layer: "platform", Began: at(15), Ended: at(55), Init: 3, Apply: 25, Wait: 12},
		{Stage: "pool", Layer: "networking", Began: at(55), Ended: at(65), Init: 1, Apply: 9},
		{Stage: "volumes", Layer: "storage", Began: at(55), Ended: at(90), Init: 4, Apply: 11, Wait: 20},
	}}
	err := json.Unmarshal([]byte(`{"stages": [
		{"name": "store", "layer": "secrets",
			"started": "1970-01-01T00:00:00Z", "ended": "1970-01-01T00:00:10Z"},
		{"name": "machines", "layer": "platform", "gate_seconds": 7,
			"started": "1970-01-01T00:00:11Z", "ended": "1970-01-01T00:00:41Z"},
		{"name": "pool", "layer": "networking",
			"started": "1970-01-01T00:00:41Z", "ended": "1970-01-01T00:00:46Z"},
		{"name": "volumes", "layer": "storage", "gate_seconds": 16,
			"started": "1970-01-01T00:00:41Z", "ended": "1970-01-01T00:01:01Z"}],
		"run": {"seconds": 61, "critical_seconds": 60, "layered_seconds": 65, "critical_path": [
			{"stage": "store", "seconds": 10}, {"stage": "machines", "seconds": 30},
			{"stage": "volumes", "late_gates": true, "seconds": 20}]}}`), &m.castle)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestThePartsOfWhatIsSavedAddUp(t *testing.T) {
	m := example(t)
	s := m.sources()
	if s.order != 5 || s.init != 9 || s.loops != 9 || s.between != 1 {
		t.Errorf("got %+v", s)
	}
	saved := m.byScript(nil) - m.castle.Run.Seconds
	if sum := s.order + s.init + s.loops + s.rest - s.between; math.Abs(sum-saved) > 1e-9 {
		t.Errorf("the parts are %g seconds, castle saves %g", sum, saved)
	}
}

func TestThePageHasBothBesideThePublishedTimes(t *testing.T) {
	page := example(t).markdown()
	for _, line := range []string{
		"| secrets | 16.0 s | 15.0 s | 10.0 s |",
		"| vault-jwt-config | 18.0 s | – | – |",
		"| platform | 1:41 | 40.0 s | 30.0 s |",
		"| networking, gitops and storage side by side | 1:55 | 35.0 s | 20.0 s |",
		"| whole | 4:49 of stages; record 8:20 | 1:30 | 1:01 |",
		"castle saves 29.0 s, 32 %:",
		"- −1.0 s: time between castle's stages, mostly preflights",
		"castle's wall clock / its critical path: 1.017 (target ≤ 1.02: met). The critical path, 1:00:",
		"- volumes, late gates 20.0 s",
	} {
		if !strings.Contains(page, line+"\n") {
			t.Errorf("no line %q in\n%s", line, page)
		}
	}
}

func TestOutputsKeepTheirTypes(t *testing.T) {
	outputs, err := decode([]byte(
		`{"names": {"sensitive": true, "type": ["set", "string"], "value": ["a"]}}`))
	if err != nil || !outputs["names"].Sensitive || outputs["names"].Value.Type().FriendlyName() !=
		"set of string" {
		t.Errorf("%v, %v", outputs, err)
	}
}
