//go:build integration

package main

import "testing"

// TestLabTalos rehearses the cluster mini with what people set of Talos' configuration.
func TestLabTalos(t *testing.T) {
	scripts(t, "mini", "testdata/lab-talos")
}
