package terraform

import (
	"bytes"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// shown is a plan as Terraform shows it, with a secret among its values.
const shown = `{"format_version":"1.2","terraform_version":"1.11.4","variables":{"token":{"value":` +
	`"tr0ub4dor-and-3"}},"resource_changes":[
 {"address":"helm_release.new","mode":"managed","type":"helm_release","change":{"actions":["create"],` +
	`"after":{"name":"new","namespace":"a","values":["tr0ub4dor-and-3"]}}},
 {"address":"module.m.helm_release.changed","mode":"managed","type":"helm_release","change":{"actions":` +
	`["update"],"before":{"name":"old","namespace":"b"},"after":{"name":"changed","namespace":"b"}}},
 {"address":"helm_release.replaced","mode":"managed","type":"helm_release","change":{"actions":["delete",` +
	`"create"],"before":{"name":"before","namespace":"c"},"after":{"name":"after","namespace":"c"}}},
 {"address":"helm_release.same","mode":"managed","type":"helm_release","change":{"actions":["no-op"],` +
	`"after":{"name":"same","namespace":"d"}}},
 {"address":"helm_release.gone","mode":"managed","type":"helm_release","change":{"actions":["delete"],` +
	`"before":{"name":"gone","namespace":"d"},"after":null}},
 {"address":"helm_release.unknown","mode":"managed","type":"helm_release","change":{"actions":["create"],` +
	`"after":{"name":"unknown"},"after_unknown":{"namespace":true}}},
 {"address":"data.helm_release.read","mode":"data","type":"helm_release","change":{"actions":["update"],` +
	`"after":{"name":"read","namespace":"d"}}},
 {"address":"kubernetes_secret_v1.a","mode":"managed","type":"kubernetes_secret_v1","change":{"actions":` +
	`["create"],"after":{"metadata":[{"name":"a","namespace":"d"}]}}},
 {"address":"kubernetes_namespace_v1.d","mode":"managed","type":"kubernetes_namespace_v1","change":{` +
	`"actions":["create"],"after":{"metadata":[{"name":"d"}]},"after_unknown":{"metadata":[{"uid":true}]}}},
 {"address":"kubernetes_secret_v1.later","mode":"managed","type":"kubernetes_secret_v1","change":{` +
	`"actions":["create"],"after":{"metadata":[{"name":"a"}]},"after_unknown":{"metadata":[{"namespace":` +
	`true}]}}},
 {"address":"kubernetes_secret_v1.generated","mode":"managed","type":"kubernetes_secret_v1","change":{` +
	`"actions":["create"],"after":{"metadata":[{"generate_name":"a-","namespace":"d"}]},"after_unknown":{` +
	`"metadata":[{"name":true}]}}},
 {"address":"proxmox_virtual_environment_vm.node[\"cp-01\"]","mode":"managed","type":` +
	`"proxmox_virtual_environment_vm","change":{"actions":["create"],"after":{"node_name":"pve","vm_id":` +
	`421,"smbios":[{"uuid":"ABC-1"}]}}},
 {"address":"proxmox_virtual_environment_vm.any","mode":"managed","type":` +
	`"proxmox_virtual_environment_vm","change":{"actions":["create"],"after":{"node_name":"pve"},` +
	`"after_unknown":{"vm_id":true}}},
 {"address":"proxmox_virtual_environment_download_file.talos","mode":"managed","type":` +
	`"proxmox_virtual_environment_download_file","change":{"actions":["create"],"after":{"node_name":` +
	`"pve","datastore_id":"local","content_type":"import","file_name":"talos.qcow2"}}},
 {"address":"infisical_secret.a","mode":"managed","type":"infisical_secret","change":{"actions":` +
	`["create"],"after":{"workspace_id":"w","env_slug":"dev","folder_path":"/a/b","name":"N"}}},
 {"address":"vault_jwt_auth_backend_role.a","mode":"managed","type":"vault_jwt_auth_backend_role",` +
	`"change":{"actions":["create"],"after":{"backend":"jwt-blue","role_name":"grafana"}}},
 {"address":"random_password.a","mode":"managed","type":"random_password","change":{"actions":["create"],` +
	`"after":{"length":12}}}
]}`

func TestAPlanReturnsItsObjectsAndLogsNothing(t *testing.T) {
	r, home := fake(t)
	var log bytes.Buffer
	r.Log = &log
	r.Identities = map[string]Identity{
		"proxmox_virtual_environment_download_file": {
			ID: "{node_name}/{datastore_id}:{content_type}/{file_name}"},
		"proxmox_virtual_environment_vm": {ID: "{node_name}/{vm_id}", UUID: "{smbios.uuid}"},
		"infisical_secret":               {ID: "{workspace_id}:{env_slug}:{folder_path}:{name}"},
		"vault_jwt_auth_backend_role":    {ID: "auth/{backend}/role/{role_name}"},
	}
	writeFile(t, filepath.Join(home, "show.out"), shown)
	got, err := (&Plan{File: "castle.tfplan", root: r}).Objects(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []Object{
		{"helm_release.new", "helm_release", "create", "a/new", "", ""},
		{"module.m.helm_release.changed", "helm_release", "update", "b/changed", "b/old", ""},
		{"helm_release.replaced", "helm_release", "replace", "c/after", "c/before", ""},
		{"helm_release.unknown", "helm_release", "create", "", "", ""},
		{"kubernetes_secret_v1.a", "kubernetes_secret_v1", "create", "d/a", "", ""},
		{"kubernetes_namespace_v1.d", "kubernetes_namespace_v1", "create", "d", "", ""},
		{"kubernetes_secret_v1.later", "kubernetes_secret_v1", "create", "", "", ""},
		{"kubernetes_secret_v1.generated", "kubernetes_secret_v1", "create", "", "", ""},
		{`proxmox_virtual_environment_vm.node["cp-01"]`, "proxmox_virtual_environment_vm", "create",
			"pve/421", "", "abc-1"},
		{"proxmox_virtual_environment_vm.any", "proxmox_virtual_environment_vm", "create", "", "", ""},
		{"proxmox_virtual_environment_download_file.talos", "proxmox_virtual_environment_download_file",
			"create", "pve/local:import/talos.qcow2", "", ""},
		{"infisical_secret.a", "infisical_secret", "create", "w:dev:/a/b:N", "", ""},
		{"vault_jwt_auth_backend_role.a", "vault_jwt_auth_backend_role", "create",
			"auth/jwt-blue/role/grafana", "", ""},
		{"random_password.a", "random_password", "create", "", "", ""},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	if log.Len() > 0 {
		t.Errorf("the log heard %q", log.String())
	}
}

func TestAnErrorOfShowLacksThePlansValues(t *testing.T) {
	r, home := fake(t)
	var log bytes.Buffer
	r.Log = &log
	for _, out := range []string{shown[:400], strings.Replace(shown, `"name":"new"`, `name`, 1),
		strings.Replace(shown, `"1.2"`, `"9.0"`, 1)} {
		writeFile(t, filepath.Join(home, "show.out"), out)
		got, err := (&Plan{File: "castle.tfplan", root: r}).Objects(t.Context())
		if err == nil || len(got) > 0 || strings.Contains(err.Error()+log.String(), "tr0ub4dor") {
			t.Errorf("got %v, %v, log %q", got, err, log.String())
		}
	}
}
