//go:build integration

package main

import "testing"

// TestLabAddresses rehearses the cluster addresses: a load balancer instead of a VIP, and both IP families.
func TestLabAddresses(t *testing.T) { scripts(t, "addresses", "testdata/lab-addresses") }
