package destroy_test

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/cluster"
	emulator "github.com/ephemeral-castle/castle/internal/emulator/hcloud"
	"github.com/ephemeral-castle/castle/internal/emulator/infisical"
	"github.com/ephemeral-castle/castle/internal/operation/destroy"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/stages"
	"github.com/ephemeral-castle/castle/templates"
)

const project = "8f3c1d52-6a0e-4b7f-9d21-5e4c7a90b6d3"

// rotated is a cluster with a server and a volume, whose recorded token the project does not accept any more.
// It returns what castle tells of the volumes, and a volume's name.
func rotated(t *testing.T, accepted string, environ ...string) []string {
	t.Helper()
	cloud := emulator.New(emulator.Config{Token: accepted})
	api := httptest.NewServer(cloud)
	t.Cleanup(func() { api.Close(); cloud.Close() })
	client := hcloud.NewClient(hcloud.WithEndpoint(api.URL+"/v1"), hcloud.WithToken(accepted))
	server, _, err := client.Server.Create(t.Context(), hcloud.ServerCreateOpts{Name: "green-cp-01",
		Image:      &hcloud.Image{ID: cloud.AddImage(schema.Image{})},
		ServerType: &hcloud.ServerType{Name: "cx33"}, Location: &hcloud.Location{Name: "fsn1"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err = client.Volume.Create(t.Context(), hcloud.VolumeCreateOpts{Name: "pvc-1", Size: 10,
		Server: server.Server, Labels: map[string]string{"managed-by": "csi-driver"}}); err != nil {
		t.Fatal(err)
	}
	secrets := infisical.New(infisical.Config{ClientID: "castle", ClientSecret: "open sesame"})
	store := httptest.NewServer(secrets.Handler())
	t.Cleanup(store.Close)
	secrets.SetSecret(infisical.Folder{Workspace: project, Environment: "prod",
		Path: "/ephemeral-castle/green/hcloud"}, "HCLOUD_TOKEN", token("s"))
	repository := t.TempDir()
	file := filepath.Join(repository, "clusters", "green", "hcloud", "cluster.hcl")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(`stage "infisical" { source = "secrets/infisical" }`),
		0o600); err != nil {
		t.Fatal(err)
	}
	c, err := cluster.Open(t.Context(), cluster.Options{Repository: repository, Cluster: "green/hcloud",
		StateDir: t.TempDir(), Library: stages.Library, Templates: templates.Files,
		Vars: map[string]string{"infisical_host": store.URL, "infisical_project_id": project},
		Environ: append(environ, "HCLOUD_ENDPOINT="+api.URL+"/v1",
			"INFISICAL_UNIVERSAL_AUTH_CLIENT_ID=castle",
			"INFISICAL_UNIVERSAL_AUTH_CLIENT_SECRET=open sesame")})
	if err != nil {
		t.Fatal(err)
	}
	record(t, c, api.URL+"/v1", strconv.FormatInt(server.Server.ID, 10))
	all, err := destroy.RecordedStages(c)
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	return all[0].Volumes(t.Context(), c, false)
}

// record records the stage machines with a token that was rotated since.
func record(t *testing.T, c *cluster.Cluster, endpoint, id string) {
	t.Helper()
	check, err := state.NewRecordedCheck("hcloud_resources", "free", map[string]cty.Value{
		"endpoint": cty.StringVal(endpoint), "api_token": cty.StringVal(token("r")),
		"resource": cty.StringVal("hcloud_server.node"),
		"servers":  cty.MapVal(map[string]cty.Value{"cp-01": cty.StringVal("green-cp-01")})})
	if err != nil {
		t.Fatal(err)
	}
	dir := c.Dir.Stage("machines")
	if err := dir.SetRecord(state.Record{Name: "machines", Layer: "platform", EndsCluster: true,
		Preflights: []state.RecordedCheck{check}}); err != nil {
		t.Fatal(err)
	}
	text := `{"version": 4, "serial": 1, "lineage": "a", "resources": [{"mode": "managed",
		"type": "hcloud_server", "name": "node",
		"provider": "provider[\"registry.terraform.io/hetznercloud/hcloud\"]", "instances": [
		{"index_key": "cp-01", "attributes": {"id": "` + id + `", "name": "green-cp-01"}}]}]}`
	if err := os.WriteFile(dir.StatePath(), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func token(letter string) string { return strings.Repeat(letter, 64) }

// Before the confirmation no run has begun that could replace the token in the records.
func TestVolumesAreListedWithTheTokenThatIsValidNow(t *testing.T) {
	const refuses = "refuses to delete volume "
	for name, test := range map[string]struct {
		accepted string
		environ  []string
		want     string
	}{
		"in the environment":  {token("e"), []string{"HCLOUD_TOKEN=" + token("e")}, refuses},
		"in the secret store": {token("s"), nil, refuses},
		"nobody has one": {token("o"), []string{"HCLOUD_TOKEN=" + token("e")},
			"the volumes that it deletes are not known: "},
	} {
		t.Run(name, func(t *testing.T) {
			lines := rotated(t, test.accepted, test.environ...)
			if len(lines) != 1 || !strings.HasPrefix(lines[0], test.want) ||
				strings.Contains(lines[0], test.accepted) || strings.Contains(lines[0], token("r")) {
				t.Errorf("%q", lines)
			}
		})
	}
}
