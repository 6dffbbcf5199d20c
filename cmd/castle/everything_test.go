//go:build integration

package main

import "testing"

// TestLabEverything rehearses the cluster everything, whose machines have each attribute that they may have.
func TestLabEverything(t *testing.T) { scripts(t, "everything", "testdata/everything") }
