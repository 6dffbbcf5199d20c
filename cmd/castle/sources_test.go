//go:build integration

package main

import "testing"

// TestSources rehearses the cluster sources: a repository over SSH, and Secrets that SOPS has encrypted.
func TestSources(t *testing.T) { scripts(t, "sources", "testdata/sources") }

// TestLabTailscale rehearses the devices of its machines.
func TestLabTailscale(t *testing.T) { scripts(t, "sources", "testdata/lab-tailscale") }
