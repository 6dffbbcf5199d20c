package infisical

import (
	"slices"
	"strings"
	"testing"

	emulator "github.com/ephemeral-castle/castle/internal/emulator/infisical"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/revision"
	"github.com/ephemeral-castle/castle/internal/state"
)

func TestRevisionsAreThoseOfTheNamesThatAStageUses(t *testing.T) {
	folder := emulator.Folder{Workspace: "p1", Environment: "prod", Path: "/blue"}
	server := emulator.New(emulator.Config{ClientID: "castle", ClientSecret: password})
	for _, name := range []string{"GITHUB_TOKEN", "KUBECONFIG_CONTENT", "SOMEBODYS"} {
		server.SetSecret(folder, name, "hush-"+name)
	}
	host := serve(t, server.Handler())
	at := map[string]any{"workspace_id": "p1", "env_slug": "prod", "folder_path": "/blue"}
	written := map[string]any{"workspace_id": "p1", "env_slug": "prod", "folder_path": "/blue",
		"name": "TALOSCONFIG_CONTENT"}
	s := revision.Stage{
		Target: gate.Target{Environ: []string{"INFISICAL_UNIVERSAL_AUTH_CLIENT_ID=castle",
			"INFISICAL_UNIVERSAL_AUTH_CLIENT_SECRET=" + password}},
		Argument: func(string, string) string { return host },
		Secrets:  func() []string { return []string{"GITHUB_TOKEN", "GIT_USERNAME"} },
		State: &state.State{Resources: []state.Resource{
			{Address: "data.infisical_secrets.all", Type: "infisical_secrets", Mode: "data",
				Provider: provider, Attributes: at},
			{Address: "infisical_secret.talosconfig", Type: "infisical_secret", Mode: "managed",
				Provider: provider, Attributes: written},
		}},
	}
	read := func() []revision.Object {
		all, err := Revisions().Read(t.Context(), s, nil)
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	was := read()
	if len(was) != 2 || was[0].Name != "/blue/GITHUB_TOKEN in environment prod" || was[0].Revision == "" ||
		was[1].Revision != "" {
		t.Fatalf("got %v, want the token, and the absent secret that the stage writes", was)
	}
	server.SetSecret(folder, "GITHUB_TOKEN", "hush-rotated")
	server.SetSecret(folder, "GIT_USERNAME", "hush-new")
	server.SetSecret(folder, "SOMEBODYS", "hush-other")
	var differ []string
	for _, d := range revision.Compare(was, read()) {
		differ = append(differ, strings.TrimPrefix(d.String(), "Infisical secret /blue/"))
	}
	want := []string{"TALOSCONFIG_CONTENT in environment prod is absent",
		"GITHUB_TOKEN in environment prod has changed", "GIT_USERNAME in environment prod is new"}
	if !slices.Equal(differ, want) {
		t.Errorf("got %q, want %q", differ, want)
	}
	s.Target.Environ = nil
	if _, err := Revisions().Read(t.Context(), s, nil); err == nil {
		t.Error("without an identity nothing is known, but there is no error")
	}
}
