package controlplane

import (
	"strings"
	"testing"

	"github.com/ephemeral-castle/castle/lab/internal/operators"
)

func TestWhatTheProcessSaysOfFaultsIsPassedOnUntilItEnds(t *testing.T) {
	said := `{"Time":"2026-02-01T12:00:00.5Z","Fault":"webhook-late","Ends":false}
{"Time":"2026-02-01T12:01:00.5Z","Fault":"webhook-late","Ends":true}
its last word`
	out := &closed{}
	var heard []operators.Turn
	listen(out, strings.NewReader(said), func(t operators.Turn) { heard = append(heard, t) })
	if len(heard) != 2 || heard[0].Ends || !heard[1].Ends || heard[1].Fault != "webhook-late" ||
		heard[1].Time.Sub(heard[0].Time).Minutes() != 1 {
		t.Errorf("heard: %+v", heard)
	}
	if !out.is {
		t.Error("the pipe is still open")
	}
	listen(out, strings.NewReader(said), nil) // nobody listens
}

type closed struct {
	is bool
}

func (c *closed) Close() error {
	c.is = true
	return nil
}
