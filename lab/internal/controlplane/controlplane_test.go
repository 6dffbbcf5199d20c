package controlplane

import (
	"strings"
	"testing"

	"github.com/ephemeral-castle/castle/lab/internal/operators"
)

func TestWhatTheProcessSaysOfFaultsIsPassedOnUntilItEnds(t *testing.T) {
	lines := `{"Time":"2026-02-01T12:00:00.5Z","Fault":"webhook-late","Ends":false}
{"Time":"2026-02-01T12:01:00.5Z","Fault":"webhook-late","Ends":true}
its last word`
	out := &closed{}
	var turns []operators.Turn
	listen(out, strings.NewReader(lines), func(t operators.Turn) { turns = append(turns, t) })
	if len(turns) != 2 || turns[0].Ends || !turns[1].Ends || turns[1].Fault != "webhook-late" ||
		turns[1].Time.Sub(turns[0].Time).Minutes() != 1 {
		t.Errorf("turns: %+v", turns)
	}
	if !out.is {
		t.Error("the pipe is still open")
	}
	listen(out, strings.NewReader(lines), nil) // nobody listens
}

type closed struct {
	is bool
}

func (c *closed) Close() error {
	c.is = true
	return nil
}
