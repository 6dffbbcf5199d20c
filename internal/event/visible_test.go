package event

import (
	"strings"
	"testing"
)

func TestNoFieldOfAnEventReachesTheTerminalRaw(t *testing.T) {
	const hostile = "ok\x1b[2J\n::error::pwn"
	e := Event{Kind: hostile, Run: hostile, Stage: hostile, Text: hostile, Ending: &Ending{Result: hostile,
		Stages: map[Result]int{hostile: 1}, Causes: []Cause{{Text: hostile}}},
		Flux: &[]FluxStep{{Name: hostile, AppliedBy: hostile, Reason: hostile, DependsOn: []string{hostile}}}}
	seen := e.Visible()
	texts := []string{string(seen.Kind), seen.Run, seen.Stage, seen.Text, string(seen.Ending.Result),
		seen.Ending.Causes[0].Text, (*seen.Flux)[0].Name, (*seen.Flux)[0].AppliedBy, (*seen.Flux)[0].Reason,
		(*seen.Flux)[0].DependsOn[0]}
	for result := range seen.Ending.Stages {
		texts = append(texts, string(result))
	}
	for _, text := range texts {
		if strings.Contains(text, "\x1b") || strings.Contains(text, "\n::error::") {
			t.Errorf("%q", text)
		}
	}
	if e.Ending.Result != hostile || (*e.Flux)[0].DependsOn[0] != hostile {
		t.Error("the event itself was changed")
	}
}
