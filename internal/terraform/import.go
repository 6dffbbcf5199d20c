package terraform

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/hashicorp/terraform-exec/tfexec"
)

// Import imports the object with the given id as the resource at address. The error
// is ErrNoSuchObject if there is no such object.
func (r *Root) Import(ctx context.Context, address, id string) error {
	return r.command(ctx, "import", nil, func(tf *tfexec.Terraform, s *stream) error {
		tf.SetStdout(s)
		return tf.Import(ctx, address, id)
	})
}

// Exists reports whether there is an object that Import would import. It imports it to
// a state of its own, which it deletes.
func (r *Root) Exists(ctx context.Context, address, id string) (bool, error) {
	dir, err := os.MkdirTemp(r.Dir, ".looking-") // for its owner alone: it may hold secrets
	if err != nil {
		return false, err
	}
	err = r.command(ctx, "import", nil, func(tf *tfexec.Terraform, s *stream) error {
		tf.SetStdout(s)
		//lint:ignore SA1019 it is no state of the backend, and deleted at once
		return tf.Import(ctx, address, id, tfexec.State(filepath.Join(dir, "terraform.tfstate")))
	})
	removed := os.RemoveAll(dir)
	if errors.Is(err, ErrNoSuchObject) {
		return false, removed
	}
	return err == nil, errors.Join(err, removed)
}

// Untrack removes resources from the state; their objects stay.
func (r *Root) Untrack(ctx context.Context, addresses []string) error {
	for _, address := range addresses {
		err := r.command(ctx, "state rm", nil, func(tf *tfexec.Terraform, s *stream) error {
			tf.SetStdout(s)
			return tf.StateRm(ctx, address)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// importID returns the id by which `terraform import` takes an object; empty if its
// values do not contain it, if castle does not know the type, or if there is nothing
// outside the state. unknown marks the values that are known after apply only.
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

// kubernetesID is NAMESPACE/NAME, or NAME: the provider gives each namespaced kind an
// argument for its namespace.
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

// joined formats an id; empty if one of its values is unknown.
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
