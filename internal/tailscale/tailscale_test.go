package tailscale

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zclconf/go-cty/cty"

	emulator "github.com/ephemeral-castle/castle/internal/emulator/tailscale"
	"github.com/ephemeral-castle/castle/internal/gate"
)

// world is a tailnet, and the stage's keys in it.
type world struct {
	server *emulator.Server
	t      tailnet
}

func newWorld(t *testing.T) world { return worldAt(t, time.Now) }

func worldAt(t *testing.T, now func() time.Time) world {
	t.Helper()
	s := emulator.New(emulator.Config{ClientID: "id", ClientSecret: "secret", Domain: "lab.ts.net",
		Tags: []string{"tag:node", "tag:other"}, Now: now})
	server := httptest.NewServer(s.Handler())
	t.Cleanup(server.Close)
	return world{s, tailnet{server.URL, "id", "secret"}}
}

// key makes a key as Terraform does: its value, and what the state then holds.
func (w world) key(t *testing.T, name string) (string, gate.Known) {
	t.Helper()
	return w.tagged(t, name, "tag:node")
}

func (w world) tagged(t *testing.T, name, tag string) (string, gate.Known) {
	t.Helper()
	var made map[string]any
	body := map[string]any{"description": name, "expirySeconds": 3600, "capabilities": map[string]any{
		"devices": map[string]any{"create": map[string]any{"preauthorized": true,
			"tags": []string{tag}}}}}
	err := w.t.client(t.Context()).Do(t.Context(), http.MethodPost, "tailnet/-/keys", body, &made)
	if err != nil {
		t.Fatal(err)
	}
	return made["key"].(string), gate.Known{Type: keyType, Address: "key[" + name + "]",
		Attributes: map[string]any{"description": name, "tags": []any{tag}, "created_at": made["created"],
			"expires_at": made["expires"]}}
}

func (w world) join(t *testing.T, key, name string) {
	t.Helper()
	if _, err := w.server.Register(key, name); err != nil {
		t.Fatal(err)
	}
}

func values(t *testing.T, w tailnet, names ...string) gate.Values {
	t.Helper()
	var list []cty.Value
	tags := map[string]cty.Value{}
	for _, n := range names {
		list = append(list, cty.StringVal(n))
		tags[n] = cty.ListVal([]cty.Value{cty.StringVal("tag:node")})
	}
	return gate.Values{"api": cty.StringVal(w.api), "client_id": cty.StringVal(w.id),
		"client_secret": cty.StringVal(w.secret), "devices": cty.ListVal(list),
		"tags": cty.MapVal(tags)}
}

func TestGateOpensWhenEachMachineIsConnected(t *testing.T) {
	w := newWorld(t)
	g, err := GateTypes()[0].New("tailnet_devices.machines", gate.Target{},
		values(t, w.t, "blue-cp-01", "blue-w-01"))
	if err != nil {
		t.Fatal(err)
	}
	closed := func(want string) {
		t.Helper()
		if err := g.Check(t.Context()); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	closed("blue-cp-01 has not joined the tailnet yet; blue-w-01 has not joined the tailnet yet")
	first, _ := w.key(t, "blue-cp-01")
	w.join(t, first, "blue-cp-01")
	closed("blue-w-01 has not joined the tailnet yet")
	second, _ := w.key(t, "blue-w-01")
	w.join(t, second, "blue-w-01")
	if err := g.Check(t.Context()); err != nil {
		t.Error(err)
	}
	w.server.Disconnect("blue-w-01")
	closed("blue-w-01 is not connected")
}

// Somebody else's device has the name of a machine, and not its tags.
func TestGateKnowsAMachineByItsTags(t *testing.T) {
	w := newWorld(t)
	other, _ := w.tagged(t, "laptop", "tag:other")
	w.join(t, other, "blue-cp-01")
	joined := func() error {
		return w.t.joined(t.Context(), []string{"blue-cp-01"},
			map[string][]string{"blue-cp-01": {"tag:node"}}, nil)
	}
	if err := joined(); err == nil || err.Error() != "blue-cp-01 has not joined the tailnet yet" {
		t.Error(err)
	}
	key, _ := w.key(t, "blue-cp-01")
	w.join(t, key, "blue-cp-01")
	if err := joined(); err == nil || !strings.Contains(err.Error(),
		"blue-cp-01 is called blue-cp-01-1.lab.ts.net, because another device has its name: delete that") {
		t.Error(err)
	}
}

// The machine boots after its key's hour.
func TestAKeyThatExpiredUnusedIsMadeAnew(t *testing.T) {
	w := worldAt(t, func() time.Time { return time.Now().Add(-time.Hour - time.Second) })
	_, late := w.key(t, "blue-cp-01")
	used, own := w.key(t, "blue-w-01")
	w.join(t, used, "blue-w-01")
	names := []string{"blue-cp-01", "blue-w-01"}
	tags := map[string][]string{"blue-cp-01": {"tag:node"}, "blue-w-01": {"tag:node"}}
	expires := map[string]string{}
	for _, k := range []gate.Known{late, own} {
		expires[fmt.Sprint(k.Attributes["description"])] = fmt.Sprint(k.Attributes["expires_at"])
	}
	err := w.t.joined(t.Context(), names, tags, expires)
	if err == nil || err.Error() != "blue-cp-01 has not joined the tailnet, and its key has expired ("+
		expires["blue-cp-01"]+"); castle create makes another one" {
		t.Error(err)
	}
	found, err := w.t.inspect(t.Context(), names, []gate.Known{late, own})
	if err != nil || !slices.Equal(found.Lost, []string{late.Address}) || len(found.Foreign) > 0 {
		t.Errorf("%+v, %v", found, err)
	}
	own.Attributes["tags"] = []any{"tag:former"} // somebody has given the device other tags since
	found, err = w.t.inspect(t.Context(), names, []gate.Known{late, own})
	if err != nil || !slices.Equal(found.Lost, []string{late.Address}) {
		t.Errorf("with other tags: %+v, %v", found, err)
	}
	expires["blue-cp-01"] = time.Now().Add(time.Minute).Format(time.RFC3339)
	if err := w.t.joined(t.Context(), names, tags, expires); err != nil {
		t.Error(err)
	}
}

// One key admits one device: of two that fit, one is somebody else's.
func TestCastleRemovesNoDeviceOfTwo(t *testing.T) {
	w := newWorld(t)
	key, own := w.key(t, "blue-cp-01")
	w.join(t, key, "blue-cp-01")
	second, _ := w.key(t, "blue-cp-01")
	w.join(t, second, "blue-cp-01")
	err := w.t.remove(t.Context(), []gate.Known{own})
	if err == nil || !strings.Contains(err.Error(), "2 devices blue-cp-01") || len(w.server.Devices()) != 2 {
		t.Errorf("%v, %d devices", err, len(w.server.Devices()))
	}
}

func TestGateNamesWhatTheAPIRefuses(t *testing.T) {
	w := newWorld(t)
	w.t.secret = "old"
	err := w.t.joined(t.Context(), []string{"blue-cp-01"},
		map[string][]string{"blue-cp-01": {"tag:node"}}, nil)
	if err == nil || !strings.Contains(err.Error(), "it refuses the OAuth client (401); check TAILSCALE") ||
		strings.Contains(err.Error(), "old") {
		t.Error(err)
	}
}

// Only the devices that the state's keys have admitted are removed, and the names are free again.
func TestADestroyRemovesTheDevicesOfItsKeysAlone(t *testing.T) {
	w := newWorld(t)
	p, err := PreflightTypes()[0].New("tailnet_devices.machines", gate.Target{}, values(t, w.t, "blue-cp-01"))
	if err != nil {
		t.Fatal(err)
	}
	inspect := func(known ...gate.Known) gate.Inspection {
		t.Helper()
		found, err := p.Inspect(t.Context(), known, func(string) {})
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	if found := inspect(); len(found.Foreign) > 0 || !found.Proof[0].Gone {
		t.Errorf("an empty tailnet: %+v", found)
	}
	key, own := w.key(t, "blue-cp-01")
	w.join(t, key, "blue-cp-01")
	other, _ := w.key(t, "laptop")
	w.join(t, other, "laptop")
	if found := inspect(own); len(found.Foreign) > 0 {
		t.Errorf("its own device: %+v", found.Foreign)
	}
	if found := inspect(); len(found.Foreign) != 1 ||
		!strings.Contains(found.Foreign[0].Why, "blue-cp-01-1") {
		t.Errorf("without the state: %+v", found.Foreign)
	}
	older := gate.Known{Type: keyType, Attributes: map[string]any{"description": "blue-cp-01",
		"tags": []any{"tag:node"}, "created_at": "2020-01-01T00:00:00Z",
		"expires_at": "2020-01-01T01:00:00Z"}}
	for _, none := range []gate.Known{older, {Type: keyType, Attributes: map[string]any{}}} {
		if err := p.Revoke(t.Context(), []gate.Known{none}, nil); err != nil || len(w.server.Devices()) != 2 {
			t.Errorf("another key: %v, %d devices", err, len(w.server.Devices()))
		}
	}
	if err := p.Revoke(t.Context(), []gate.Known{own}, nil); err != nil {
		t.Fatal(err)
	}
	if left := w.server.Devices(); len(left) != 1 || left[0].Hostname != "laptop" {
		t.Errorf("left: %+v", left)
	}
	if found := inspect(); !found.Proof[0].Gone {
		t.Errorf("after the destroy: %+v", found.Proof)
	}
}

func FuzzDevices(f *testing.F) {
	f.Add([]byte(`{"devices": [{"nodeId": "n1", "hostname": "blue-cp-01", "created": ""}]}`))
	f.Fuzz(func(_ *testing.T, body []byte) {
		var answer struct{ Devices []device }
		if json.Unmarshal(body, &answer) != nil {
			return
		}
		for _, d := range answer.Devices {
			d.admittedBy(gate.Known{Type: keyType, Attributes: map[string]any{"description": d.Hostname}})
		}
	})
}
