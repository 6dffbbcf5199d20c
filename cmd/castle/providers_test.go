//go:build integration

package main

import (
	"archive/zip"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestProviders runs the scripts about the providers' lock file with real Terraform and a filesystem mirror.
// There, a stand-in for hashicorp/random has the versions that a script gives it.
func TestProviders(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("terraform"); err != nil {
		t.Fatalf("these tests need terraform on PATH: %v", err)
	}
	program, err := filepath.Abs("../../bin/lab-providers")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(program); err != nil {
		t.Fatalf("the stand-ins are not built (make build): %v", err)
	}
	run(t, "testdata/providers", func(env *testscript.Env) error {
		// lab-providers knows by its name which provider to be.
		if err := os.Symlink(program, filepath.Join(env.WorkDir, standInName)); err != nil {
			return err
		}
		env.Setenv("TF_CLI_CONFIG_FILE", filepath.Join(env.WorkDir, "terraformrc"))
		return os.WriteFile(filepath.Join(env.WorkDir, "terraformrc"), fmt.Appendf(nil,
			"provider_installation {\n  filesystem_mirror { path = %q }\n}\n",
			filepath.Join(env.WorkDir, "mirror")), 0o600)
	}, map[string]func(*testscript.TestScript, bool, []string){"release": releaseProvider,
		"network-mirror": networkMirror, "spy": spying}, interruptible())
}

const standInName = "terraform-provider-random_v3.9.0"

// releaseProvider puts a version of hashicorp/random into the mirror, for some platforms: release VERSION
// PLATFORM... Each release has files of its own, so each has another checksum.
func releaseProvider(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: release version platform...")
	}
	for _, platform := range args[1:] {
		dir := filepath.Join(ts.Getenv("WORK"), "mirror/registry.terraform.io/hashicorp/random", args[0],
			platform)
		ts.Check(os.MkdirAll(dir, 0o755))
		script := fmt.Sprintf("#!/bin/sh\n# %s for %s\nexec %s \"$@\"\n", args[0], platform,
			filepath.Join(ts.Getenv("WORK"), standInName))
		file := filepath.Join(dir, "terraform-provider-random_v"+args[0])
		ts.Check(os.WriteFile(file, []byte(script), 0o755))
	}
}

// networkMirror serves the mirror over TLS by Terraform's provider network mirror protocol, and makes it the
// only source of providers.
func networkMirror(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: network-mirror")
	}
	root := filepath.Join(ts.Getenv("WORK"), "mirror")
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := serveMirror(w, filepath.Join(root, filepath.FromSlash(r.URL.Path))); err != nil {
			http.Error(w, err.Error(), http.StatusNotFound)
		}
	}))
	ts.Defer(server.Close)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	ts.Check(os.WriteFile(filepath.Join(ts.Getenv("WORK"), "ca.crt"), authority, 0o600))
	ts.Setenv("SSL_CERT_FILE", filepath.Join(ts.Getenv("WORK"), "ca.crt"))
	ts.Check(os.WriteFile(ts.Getenv("TF_CLI_CONFIG_FILE"), fmt.Appendf(nil,
		"provider_installation {\n  network_mirror { url = %q }\n}\n", server.URL+"/"), 0o600))
}

// serveMirror serves one file of the protocol: index.json, VERSION.json, or VERSION_PLATFORM.zip.
func serveMirror(w http.ResponseWriter, path string) error {
	provider, name := filepath.Split(path)
	entries := func(dir string, entry func(name string) any) (map[string]any, error) {
		all := map[string]any{}
		found, err := os.ReadDir(dir)
		for _, e := range found {
			all[e.Name()] = entry(e.Name())
		}
		return all, err
	}
	if version, is := strings.CutSuffix(name, ".zip"); is {
		version, platform, _ := strings.Cut(version, "_")
		z := zip.NewWriter(w)
		return errors.Join(z.AddFS(os.DirFS(filepath.Join(provider, version, platform))), z.Close())
	}
	key, dir := "versions", provider
	entry := func(string) any { return struct{}{} }
	if version := strings.TrimSuffix(name, ".json"); version != "index" {
		key, dir = "archives", filepath.Join(provider, version)
		entry = func(platform string) any {
			return map[string]string{"url": version + "_" + platform + ".zip"}
		}
	}
	all, err := entries(dir, entry)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(w).Encode(map[string]any{key: all})
}
