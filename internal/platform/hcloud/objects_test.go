package hcloud

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/ephemeral-castle/castle/internal/effect"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/platform"
	"github.com/ephemeral-castle/castle/internal/terraform/planned"
)

func mustCIDR(t *testing.T, text string) *net.IPNet {
	t.Helper()
	_, block, err := net.ParseCIDR(text)
	if err != nil {
		t.Fatal(err)
	}
	return block
}

// schemas are those of the real provider.
func schemas(t *testing.T) (resources map[string]struct {
	Block struct {
		Attributes map[string]struct{ Optional, Required bool }
		BlockTypes map[string]any `json:"block_types"`
	}
}) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "lab", "schemas", "hetznercloud-hcloud.json"))
	if err != nil {
		t.Fatal(err)
	}
	var facts struct {
		Resources json.RawMessage `json:"resource_schemas"`
	}
	if err := json.Unmarshal(text, &facts); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(facts.Resources, &resources); err != nil {
		t.Fatal(err)
	}
	return resources
}

// Every argument of the real provider's server has a row: one without counts as a replacement.
func TestEveryArgumentOfAServerHasAnEffect(t *testing.T) {
	server := schemas(t)[typeServer].Block
	if len(server.Attributes) < 10 {
		t.Fatalf("%d arguments", len(server.Attributes))
	}
	for name, a := range server.Attributes {
		if _, known := rows[name]; !known && (a.Optional || a.Required) {
			t.Errorf("%s has no row", name)
		}
	}
	for name := range server.BlockTypes {
		if _, known := rows[name]; !known {
			t.Errorf("the block %s has no row", name)
		}
	}
}

func TestEffectsOfAChangedServer(t *testing.T) {
	for path, want := range map[string]effect.Kind{"labels.role": effect.None, "server_type": effect.Restarts,
		"public_net[0].ipv4": effect.Restarts, "firewall_ids": effect.Interrupts, "image": effect.Replaces,
		"of_a_newer_provider": effect.Replaces} {
		got := (Platform{}).Effects(nil, false, []planned.Difference{{Path: path}})
		if len(got) != 1 || got[0].Kind != want {
			t.Errorf("%s: %+v", path, got)
		}
	}
	if got := (Platform{}).Effects(nil, true,
		[]planned.Difference{{Path: "labels"}}); got[0].Kind != effect.Replaces {
		t.Errorf("%+v", got)
	}
}

// Types without a kind or a part would be missing in the proof of a destroy.
func TestEveryTypeOfTheSchemasIsOwned(t *testing.T) {
	for typ := range schemas(t) {
		if typ != "hcloud_ssh_key" && !(Platform{}).Owns(typ) {
			t.Errorf("%s", typ)
		}
	}
}

func TestObjectsOfAState(t *testing.T) {
	all := (Platform{}).ObjectsOf([]gate.Known{
		{Type: typeServer, Attributes: map[string]any{"id": "42", "name": "green-cp-01", "location": "fsn1",
			"labels": map[string]any{labelUUID: "ABC"}}},
		{Type: "hcloud_load_balancer", Attributes: map[string]any{"id": "7", "name": "green"}},
		{Type: "hcloud_server_network", Attributes: map[string]any{"id": "42-7"}},
		{Type: typeServer, Attributes: map[string]any{}},
		{Type: "proxmox_virtual_environment_vm", Attributes: map[string]any{"id": "421"}},
	})
	want := []platform.Object{
		{Kind: platform.Machine, Node: "fsn1", VM: 42, UUID: "abc", Name: "green-cp-01"},
		{Kind: "load balancer", Volume: "7", Name: "green"},
	}
	if !slices.EqualFunc(all, want, func(a, b platform.Object) bool {
		return a.Kind == b.Kind && a.ID() == b.ID() && a.Node == b.Node && a.UUID == b.UUID &&
			a.Name == b.Name
	}) {
		t.Errorf("%+v", all)
	}
}

func TestAccountsOfTheEnvironment(t *testing.T) {
	if a := (Platform{}).Environment([]string{"HCLOUD_TOKEN=x"}); a.Endpoint != DefaultEndpoint ||
		a.Token != "x" {
		t.Errorf("%+v", a)
	}
	if a := (Platform{}).Environment(nil); a.Endpoint != "" {
		t.Errorf("%+v", a)
	}
	if !(Platform{}).SameEndpoint("https://API.hetzner.cloud/v1/", "") ||
		(Platform{}).SameEndpoint("https://api.example.org/v1", "") {
		t.Error("endpoints")
	}
	for _, endpoint := range []string{"http://api.hetzner.cloud/v1", "api.hetzner.cloud", "::"} {
		if _, err := open(platform.Account{Endpoint: endpoint}); err == nil {
			t.Errorf("%s is accepted: a token would be sent there", endpoint)
		}
	}
	if err := (Platform{}).CheckToken("secret"); err == nil {
		t.Error("a short token is accepted")
	}
}
