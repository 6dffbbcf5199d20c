package main

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"
)

// example is a cluster of five stages. castle takes 61 seconds: secrets 10, platform 30, storage 20, and
// beside it the pool 5 and Flux 15. Layer by layer that is four more. The script takes 95.
func example(t *testing.T) measured {
	t.Helper()
	at := func(seconds int) time.Time { return time.Unix(int64(seconds), 0) }
	m := measured{cluster: "blue", script: []step{
		{Stage: "store", Layer: "secrets", Began: at(0), Ended: at(15), Init: 2, Apply: 13},
		{Stage: "machines", Layer: "platform", Began: at(15), Ended: at(55), Init: 3, Apply: 25, Wait: 12},
		{Stage: "pool", Layer: "networking", Began: at(55), Ended: at(65), Init: 1, Apply: 9},
		{Stage: "volumes", Layer: "storage", Began: at(55), Ended: at(90), Init: 4, Apply: 11, Wait: 20},
		{Stage: "flux", Layer: "gitops", Began: at(55), Ended: at(60), Init: 2, Apply: 3},
		{Stage: "flux", Layer: "gitops", Late: true, Began: at(90), Ended: at(95), Wait: 5},
	}}
	err := json.Unmarshal([]byte(`{"stages": [
		{"name": "store", "layer": "secrets",
			"started": "1970-01-01T00:00:00Z", "ended": "1970-01-01T00:00:10Z"},
		{"name": "machines", "layer": "platform", "gate_seconds": 7,
			"started": "1970-01-01T00:00:11Z", "ended": "1970-01-01T00:00:41Z"},
		{"name": "pool", "layer": "networking",
			"started": "1970-01-01T00:00:41Z", "ended": "1970-01-01T00:00:46Z"},
		{"name": "flux", "layer": "gitops", "gate_seconds": 6,
			"started": "1970-01-01T00:00:41Z", "ended": "1970-01-01T00:00:56Z"},
		{"name": "volumes", "layer": "storage", "gate_seconds": 16,
			"started": "1970-01-01T00:00:41Z", "ended": "1970-01-01T00:01:01Z"}],
		"run": {"seconds": 61, "critical_seconds": 60, "critical_path": [
			{"stage": "store", "seconds": 10}, {"stage": "machines", "seconds": 30},
			{"stage": "volumes", "seconds": 18},
			{"stage": "flux", "late_gates": true, "seconds": 2}]}}`), &m.castle)
	if err != nil {
		t.Fatal(err)
	}
	m.castle.layeredSeconds = 65
	return m
}

func TestThePartsOfWhatIsSavedAddUp(t *testing.T) {
	m := example(t)
	s := m.sources()
	if s.order != 5 || s.init != 9 || s.loops != 12 || s.between != 1 {
		t.Errorf("got %+v", s)
	}
	saved := m.byScript(nil) - m.castle.Run.Seconds
	if sum := s.order + s.init + s.loops + s.rest - s.between; math.Abs(sum-saved) > 1e-9 {
		t.Errorf("the parts are %g seconds, castle saves %g", sum, saved)
	}
}

func TestThePageHasBothBesideThePublishedTimes(t *testing.T) {
	page := page{speed: "1", load: "0.1 0.2 0.3", clusters: []measured{example(t), example(t)}}.markdown()
	for _, line := range []string{
		"| | TazLab, published | blue, script | blue, castle | blue, script | blue, castle |",
		"| secrets | 16.0 s | 15.0 s | 10.0 s | 15.0 s | 10.0 s |",
		"| vault-jwt-config | 18.0 s | – | – | – | – |",
		"| platform | 1:41 | 40.0 s | 30.0 s | 40.0 s | 30.0 s |",
		"| networking, gitops and storage side by side | 1:55 | 35.0 s | 20.0 s | 35.0 s | 20.0 s |",
		"| Flux converges, 83 Pods | 3:11 | 5.0 s | – | 5.0 s | – |",
		"| whole | about 8:00; record 8:20 | 1:35 | 1:01 | 1:35 | 1:01 |",
		"## blue",
		"castle saves 34.0 s, 36 %:",
		"- −1.0 s: time between castle's stages, mostly preflights",
		"castle's wall clock / its critical path: 1.017 (target ≤ 1.02: met). The critical path, 1:00:",
		"- flux, late gates 2.0 s",
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
