//go:build integration

package main

import (
	"os"
	"testing"
)

// TestLabExpired raises the cluster mini with a webhook of Longhorn whose CA has expired, and shows that
// castle tells the one cause of all closed gates once.
func TestLabExpired(t *testing.T) {
	if here := os.Getenv(inLab); here != "" {
		t.Chdir(here)
		inside(t, "testdata/expired")
		return
	}
	rehearse(t, nil, "-C", "../..", "mini", "--fault", "ca-expired=1h")
}
