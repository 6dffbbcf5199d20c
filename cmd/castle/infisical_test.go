package main

import (
	"encoding/pem"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"

	"github.com/rogpeppe/go-internal/testscript"

	emulator "github.com/ephemeral-castle/castle/internal/emulator/infisical"
)

type infisicalKey struct{}

// infisical is what stands for Infisical, with one empty folder:
//
//	infisical start            starts it; the environment holds its address, certificate and credentials
//	infisical put NAME VALUE   puts a secret into the folder
//	infisical list             prints the secrets
func infisical(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: infisical start|put|list")
	}
	server := ts.Value(infisicalKey{}).(*emulator.Server)
	folder := emulator.Folder{Workspace: "p1", Environment: "prod", Path: "/ephemeral-castle/blue/lab"}
	switch args[0] {
	case "start":
		listening := httptest.NewTLSServer(server.Handler())
		ts.Defer(listening.Close)
		bundle := filepath.Join(ts.Getenv("WORK"), "infisical.pem")
		ts.Check(os.WriteFile(bundle,
			pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: listening.Certificate().Raw}), 0o600))
		ts.Setenv("SSL_CERT_FILE", bundle)
		ts.Setenv("TF_VAR_infisical_host", listening.URL)
		ts.Setenv("TF_VAR_infisical_project_id", folder.Workspace)
		ts.Setenv("INFISICAL_UNIVERSAL_AUTH_CLIENT_ID", "castle")
		ts.Setenv("INFISICAL_UNIVERSAL_AUTH_CLIENT_SECRET", "open sesame")
	case "put":
		server.SetSecret(folder, args[1], args[2])
	case "list":
		for _, s := range server.Secrets() {
			fmt.Fprintf(ts.Stdout(), "%s=%s\n", s.Key, s.Value)
		}
	default:
		ts.Fatalf("infisical: unknown %q", args[0])
	}
}

// newInfisical is one with the folder of blue.
func newInfisical() *emulator.Server {
	return emulator.New(emulator.Config{ClientID: "castle", ClientSecret: "open sesame",
		Folders: []emulator.Folder{
			{Workspace: "p1", Environment: "prod", Path: "/ephemeral-castle/blue/lab"},
		}})
}
