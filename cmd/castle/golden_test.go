//go:build integration

package main

import "testing"

// TestLabGolden rehearses the cluster golden, whose machines are highly available.
func TestLabGolden(t *testing.T) { scripts(t, "golden", "testdata/golden") }
