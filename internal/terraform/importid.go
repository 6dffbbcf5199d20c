package terraform

import (
	"encoding/json"
	"fmt"
	"strings"
)

// importID is what `terraform import` takes an object of this type by; empty
// where its values do not say it, where the type is not known, and where there is
// nothing outside of the state that could be imported. unknown says which values
// are decided by the apply.
func importID(typ string, values, unknown any) string {
	v, _ := values.(map[string]any)
	switch typ {
	case "proxmox_virtual_environment_vm":
		return joined("%s/%s", v["node_name"], v["vm_id"])
	case "proxmox_virtual_environment_download_file", "proxmox_download_file":
		return joined("%s/%s:%s/%s", v["node_name"], v["datastore_id"], v["content_type"], v["file_name"])
	case "infisical_secret":
		return joined("%s:%s:%s:%s", v["workspace_id"], v["env_slug"], v["folder_path"], v["name"])
	case "helm_release":
		return joined("%s/%s", v["namespace"], v["name"])
	case "vault_mount", "vault_jwt_auth_backend":
		return joined("%s", v["path"])
	case "vault_policy":
		return joined("%s", v["name"])
	case "vault_jwt_auth_backend_role":
		return joined("auth/%s/role/%s", v["backend"], v["role_name"])
	case "vault_kv_secret_v2":
		return joined("%s/data/%s", v["mount"], v["name"])
	case "vault_database_secret_backend_connection":
		return joined("%s/config/%s", v["backend"], v["name"])
	case "vault_database_secret_backend_role":
		return joined("%s/roles/%s", v["backend"], v["name"])
	}
	if strings.HasPrefix(typ, "kubernetes_") {
		return kubernetesID(metadataOf(values), metadataOf(unknown))
	}
	return ""
}

// kubernetesID is an object's name, after its namespace's if it is in one. The
// provider gives each kind that lives in a namespace an argument for it.
func kubernetesID(metadata, unknown map[string]any) string {
	_, namespaced := metadata["namespace"]
	if _, later := unknown["namespace"]; namespaced || later {
		return joined("%s/%s", metadata["namespace"], metadata["name"])
	}
	return joined("%s", metadata["name"])
}

func metadataOf(values any) map[string]any {
	v, _ := values.(map[string]any)
	list, _ := v["metadata"].([]any)
	if len(list) != 1 {
		return nil
	}
	metadata, _ := list[0].(map[string]any)
	return metadata
}

// joined is the id that consists of these values; empty if one is not known.
func joined(format string, values ...any) string {
	for i, value := range values {
		switch x := value.(type) {
		case string:
			if x == "" {
				return ""
			}
		case json.Number:
			values[i] = x.String()
		case float64:
			values[i] = fmt.Sprintf("%.0f", x)
		default:
			return ""
		}
	}
	return fmt.Sprintf(format, values...)
}
