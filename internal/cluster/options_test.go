package cluster_test

import (
	"testing"

	"github.com/ephemeral-castle/castle/internal/cluster"
)

// An intent names an object by the id that `terraform import` takes: with another one, the next run would not
// find what a killed run has made.
func TestPlansIdentifyEachObjectAsTerraformImportsIt(t *testing.T) {
	image := map[string]any{"node_name": "pve", "datastore_id": "local", "content_type": "import",
		"file_name": "talos.qcow2"}
	cases := map[string]struct {
		attributes map[string]any
		id, uuid   string
	}{
		"proxmox_virtual_environment_vm": {map[string]any{"node_name": "pve", "vm_id": 421.0,
			"smbios": []any{map[string]any{"uuid": "ABC-1"}}}, "pve/421", "abc-1"},
		"hcloud_server": {map[string]any{"location": "fsn1", "name": "green-cp-01",
			"labels": map[string]any{"castle_uuid": "ABC-1"}}, "fsn1/green-cp-01", "abc-1"},
		"proxmox_virtual_environment_download_file": {image, "pve/local:import/talos.qcow2", ""},
		"proxmox_download_file":                     {image, "pve/local:import/talos.qcow2", ""},
		"proxmox_haresource":                        {map[string]any{"resource_id": "vm:421"}, "vm:421", ""},
		"proxmox_harule":                            {map[string]any{"rule": "blue"}, "blue", ""},
		"proxmox_virtual_environment_haresource":    {map[string]any{"resource_id": "vm:421"}, "vm:421", ""},
		"proxmox_virtual_environment_harule":        {map[string]any{"rule": "blue"}, "blue", ""},
		"infisical_secret": {map[string]any{"workspace_id": "w", "env_slug": "dev", "folder_path": "/a/b",
			"name": "N"}, "w:dev:/a/b:N", ""},
		"vault_mount":            {map[string]any{"path": "database-blue"}, "database-blue", ""},
		"vault_jwt_auth_backend": {map[string]any{"path": "jwt-blue"}, "jwt-blue", ""},
		"vault_policy":           {map[string]any{"name": "blue-grafana"}, "blue-grafana", ""},
		"vault_jwt_auth_backend_role": {map[string]any{"backend": "jwt-blue", "role_name": "grafana"},
			"auth/jwt-blue/role/grafana", ""},
		"vault_kv_secret_v2": {map[string]any{"mount": "secret", "name": "blue/database"},
			"secret/data/blue/database", ""},
		"vault_database_secret_backend_connection": {map[string]any{"backend": "database-blue", "name": "db"},
			"database-blue/config/db", ""},
		"vault_database_secret_backend_role": {map[string]any{"backend": "database-blue", "name": "grafana"},
			"database-blue/roles/grafana", ""},
	}
	for typ, identity := range cluster.Identities() {
		c, known := cases[typ]
		if id, uuid := identity.Of(c.attributes); !known || id != c.id || uuid != c.uuid {
			t.Errorf("%s: %q, %q; want %q, %q", typ, id, uuid, c.id, c.uuid)
		}
		if id, _ := identity.Of(nil); id != "" {
			t.Errorf("%s without attributes: %q", typ, id)
		}
		delete(cases, typ)
	}
	for typ := range cases {
		t.Errorf("%s has no identity", typ)
	}
}
