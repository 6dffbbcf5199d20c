//go:build integration

package main

import "testing"

// Flux's real controllers apply the repositories that the doubles apply in TestHandover and TestLanding.
func TestLabFluxHandover(t *testing.T) {
	scripts(t, "handover", "testdata/handover", "--controllers", "real")
}

func TestLabFluxTazlab(t *testing.T) {
	scripts(t, "tazlab", "testdata/lab-flux", "--controllers", "real")
}
