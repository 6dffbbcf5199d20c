//go:build integration

package main

import "testing"

// TestSources rehearses the cluster sources: a repository over SSH, and Secrets that SOPS has encrypted.
func TestSources(t *testing.T) { scripts(t, "sources", "testdata/sources") }

// TestLabLease rehearses machines whose addresses are a DHCP server's.
func TestLabLease(t *testing.T) {
	scripts(t, "sources", "testdata/lab-lease", "--fault", "lease-moves=worker-01")
}

// TestLabTailscale rehearses the devices of its machines.
func TestLabTailscale(t *testing.T) { scripts(t, "sources", "testdata/lab-tailscale") }
