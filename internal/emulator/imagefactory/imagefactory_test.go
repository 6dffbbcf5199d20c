package imagefactory_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/ephemeral-castle/castle/internal/emulator/imagefactory"
)

// The ids are those of the real factory, which Talos' documentation names.
func TestTheIDIsThatOfTheRealFactory(t *testing.T) {
	s := &imagefactory.Server{}
	server := httptest.NewServer(s.Handler())
	defer server.Close()
	post := func(text string) (status int, id, body string) {
		t.Helper()
		response, err := http.Post(server.URL+"/schematics", "application/yaml", strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		content, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		var answer struct{ ID string }
		if response.StatusCode == http.StatusCreated {
			if err := json.Unmarshal(content, &answer); err != nil {
				t.Fatal(err)
			}
		}
		return response.StatusCode, answer.ID, string(content)
	}
	const longhorn = "613e1592b2da41ae5e265e8789429f22e121aab91cb4deb6bc3c0b6262961245"
	for text, want := range map[string]string{
		"customization: {}\n": "376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba",
		`{"customization": {"systemExtensions": {"officialExtensions": ` +
			`["siderolabs/iscsi-tools", "siderolabs/util-linux-tools"]}}}`: longhorn,
		"customization:\n  systemExtensions:\n    officialExtensions:\n" +
			"      - siderolabs/iscsi-tools\n      - siderolabs/util-linux-tools\n": longhorn,
	} {
		if status, id, body := post(text); status != http.StatusCreated || id != want {
			t.Errorf("%s: %d %s", text, status, body)
		}
	}
	if status, _, body := post("customization: {extensions: [a]}"); status != http.StatusBadRequest ||
		!strings.Contains(body, "field extensions not found") {
		t.Errorf("an unknown field: %d %s", status, body)
	}
	for url, want := range map[string]bool{
		"https://factory.talos.dev/image/" + longhorn + "/v1.13.0/nocloud-amd64.raw.xz": true,
		"https://factory.talos.dev/image/3765" + strings.Repeat("0", 60) + "/v1.13.0/x": true, // unknown
		"": true,
		"https://factory.talos.dev/image/376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba" +
			"/v1.13.0/nocloud-amd64.raw.xz": false,
	} {
		if s.Extends(url, "siderolabs/iscsi-tools") != want {
			t.Errorf("%s: the extension is there: %v", url, !want)
		}
	}
	for id, want := range map[string]int{longhorn: http.StatusOK, "0123": http.StatusNotFound} {
		response, err := http.Get(server.URL + "/schematics/" + id)
		if err != nil {
			t.Fatal(err)
		}
		if response.Body.Close(); response.StatusCode != want {
			t.Errorf("schematic %s: %s", id, response.Status)
		}
	}
	const own = "customization: {systemExtensions: {officialExtensions: [siderolabs/qemu-guest-agent]}}"
	id := imagefactory.ID([]byte("customization:\n    systemExtensions:\n        officialExtensions:\n" +
		"            - siderolabs/qemu-guest-agent\n"))
	image := "https://factory.talos.dev/image/" + id + "/v1.13.0/nocloud-amd64.qcow2"
	if err := s.Refusal(image); err == nil {
		t.Error("the factory has an image of a schematic that nobody has posted")
	}
	post(own)
	if err := s.Refusal(image); err != nil {
		t.Error(err)
	}
	if got := s.Made(); len(got) != 3 {
		t.Errorf("made: %v", got)
	}
}
