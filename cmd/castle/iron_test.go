//go:build integration

package main

import "testing"

// TestLabIron rehearses the cluster iron, on machines that somebody else has made.
func TestLabIron(t *testing.T) { scripts(t, "iron", "testdata/lab-iron") }
