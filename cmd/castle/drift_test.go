//go:build integration

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestDrift rehearses the cluster mini, in which somebody changes things by hand after a create.
func TestDrift(t *testing.T) {
	scripts(t, "mini", "testdata/drift")
}

// TestUseless rehearses the cluster mini, in which somebody makes things useless that go on running.
func TestUseless(t *testing.T) {
	scripts(t, "mini", "testdata/useless")
}

// byHand changes the world as somebody would who does not use castle:
//
//	by-hand vm ID KEY=VALUE     changes the configuration of a VM
//	by-hand volume VOLID        deletes a volume of the storage local
//	by-hand secret NAME [VALUE] changes a secret of mini's folder in Infisical, or deletes it
//	by-hand new-secret NAME VALUE
//	by-hand proxmox METHOD PATH [FORM] asks Proxmox, and prints its answer
func byHand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: by-hand vm ID KEY=VALUE | volume VOLID | secret NAME [VALUE] | " +
			"proxmox METHOD PATH [FORM]")
	}
	ctx := context.Background()
	switch args[0] {
	case "vm":
		_, err := askProxmox(ctx, http.MethodPut, "nodes/proxmox/qemu/"+args[1]+"/config", args[2])
		ts.Check(err)
	case "volume":
		_, err := askProxmox(ctx, http.MethodDelete, "nodes/proxmox/storage/local/content/"+args[1])
		ts.Check(err)
	case "proxmox":
		answer, err := askProxmox(ctx, args[1], args[2], args[3:]...)
		ts.Check(err)
		fmt.Fprintln(ts.Stdout(), string(answer))
	case "secret", "new-secret":
		login := map[string]string{"clientId": ts.Getenv("INFISICAL_UNIVERSAL_AUTH_CLIENT_ID"),
			"clientSecret": ts.Getenv("INFISICAL_UNIVERSAL_AUTH_CLIENT_SECRET")}
		var session struct{ AccessToken string }
		askInfisical(ts, http.MethodPost, "/api/v1/auth/universal-auth/login", "", login, &session)
		body := map[string]string{"workspaceId": "8f3c1d52-6a0e-4b7f-9d21-5e4c7a90b6d3",
			"environment": "prod", "secretPath": "/ephemeral-castle/mini/proxmox"}
		method := http.MethodDelete
		if len(args) > 2 {
			method, body["secretValue"] = http.MethodPatch, args[2]
		}
		if args[0] == "new-secret" {
			method = http.MethodPost
		}
		askInfisical(ts, method, "/api/v3/secrets/raw/"+args[1], session.AccessToken, body, nil)
	default:
		ts.Fatalf("by-hand: unknown %q", args[0])
	}
}

func askInfisical(ts *testscript.TestScript, method, path, token string, body, into any) {
	text, err := json.Marshal(body)
	ts.Check(err)
	client, err := insideClient()
	ts.Check(err)
	req, err := http.NewRequestWithContext(context.Background(), method, "https://eu.infisical.com"+path,
		bytes.NewReader(text))
	ts.Check(err)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+token)
	answer, err := answerOf(client.Do(req))
	ts.Check(err)
	if into != nil {
		ts.Check(json.Unmarshal(answer, into))
	}
}
