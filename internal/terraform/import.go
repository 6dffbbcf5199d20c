package terraform

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/hashicorp/terraform-exec/tfexec"

	"github.com/ephemeral-castle/castle/internal/atomicfile"
	"github.com/ephemeral-castle/castle/internal/ownfile"
)

// Import imports the object with the given id as the resource at address. The error
// is ErrNoSuchObject if there is no such object.
func (r *Root) Import(ctx context.Context, address, id string) error {
	if err := beforeWrite(ctx, r); err != nil {
		return err
	}
	return r.command(ctx, "import", nil, func(tf *tfexec.Terraform, s *stream) error {
		tf.SetStdout(s)
		return tf.Import(ctx, address, id, s.running)
	})
}

// Exists reports whether there is an object that Import would import. It imports it to
// a state of its own, which it deletes.
func (r *Root) Exists(ctx context.Context, address, id string) (bool, error) {
	dir, err := atomicfile.MkdirTemp(r.Dir, "looking") // for its owner alone: it may hold secrets
	if err != nil {
		return false, err
	}
	err = r.command(ctx, "import", nil, func(tf *tfexec.Terraform, s *stream) error {
		tf.SetStdout(s)
		//lint:ignore SA1019 it is no state of the backend, and deleted at once
		return tf.Import(ctx, address, id, tfexec.State(filepath.Join(dir, "terraform.tfstate")), s.running)
	})
	removed := ownfile.RemoveAll(dir)
	if errors.Is(err, ErrNoSuchObject) {
		return false, removed
	}
	return err == nil, errors.Join(err, removed)
}

// Untrack removes resources from the state; their objects stay.
func (r *Root) Untrack(ctx context.Context, addresses []string) error {
	return r.each(ctx, "state rm", addresses, func(tf *tfexec.Terraform, address string) error {
		return tf.StateRm(ctx, address)
	})
}

// Taint marks resources in the state, so that the next plan replaces them.
func (r *Root) Taint(ctx context.Context, addresses []string) error {
	return r.each(ctx, "taint", addresses, func(tf *tfexec.Terraform, address string) error {
		return tf.Taint(ctx, address)
	})
}

// each runs a command that may write the state for each address.
func (r *Root) each(ctx context.Context, command string, addresses []string,
	do func(*tfexec.Terraform, string) error) error {
	if err := beforeWrite(ctx, r); err != nil {
		return err
	}
	for _, address := range addresses {
		err := r.command(ctx, command, nil, func(tf *tfexec.Terraform, s *stream) error {
			tf.SetStdout(s)
			return do(tf, address)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// importIDs are the ids by which `terraform import` takes an object, by its type.
var importIDs = map[string]string{
	"proxmox_virtual_environment_vm":            "{node_name}/{vm_id}",
	"proxmox_virtual_environment_download_file": "{node_name}/{datastore_id}:{content_type}/{file_name}",
	"proxmox_download_file":                     "{node_name}/{datastore_id}:{content_type}/{file_name}",
	"infisical_secret":                          "{workspace_id}:{env_slug}:{folder_path}:{name}",
	"helm_release":                              "{namespace}/{name}",
	"vault_mount":                               "{path}",
	"vault_jwt_auth_backend":                    "{path}",
	"vault_policy":                              "{name}",
	"vault_jwt_auth_backend_role":               "auth/{backend}/role/{role_name}",
	"vault_kv_secret_v2":                        "{mount}/data/{name}",
	"vault_database_secret_backend_connection":  "{backend}/config/{name}",
	"vault_database_secret_backend_role":        "{backend}/roles/{name}",
}

var attribute = regexp.MustCompile(`\{\w+\}`)

// importID returns an object's id. It is empty if the values lack it, if castle does not know the type, or
// if the object exists only in the state. unknown marks values that are known only after apply.
func importID(typ string, values, unknown any) string {
	id, known := importIDs[typ], true
	from, _ := values.(map[string]any)
	if strings.HasPrefix(typ, "kubernetes_") {
		// The provider gives each namespaced kind an argument for its namespace.
		id, from = "{name}", blockOf(values, "metadata")
		_, namespaced := from["namespace"]
		if _, later := blockOf(unknown, "metadata")["namespace"]; namespaced || later {
			id = "{namespace}/{name}"
		}
	}
	id = attribute.ReplaceAllStringFunc(id, func(name string) string {
		switch value := from[strings.Trim(name, "{}")].(type) {
		case string:
			known = known && value != ""
			return value
		case json.Number:
			return value.String()
		case float64:
			return fmt.Sprintf("%.0f", value)
		}
		known = false
		return ""
	})
	if !known {
		return ""
	}
	return id
}

// machineUUID returns the uuid in the block smbios of a Proxmox machine, or "".
func machineUUID(values any) string {
	smbios, _ := blockOf(values, "smbios")["uuid"].(string)
	return strings.ToLower(smbios)
}

// blockOf returns the values of a block that may be there once.
func blockOf(values any, name string) map[string]any {
	v, _ := values.(map[string]any)
	list, _ := v[name].([]any)
	if len(list) != 1 {
		return nil
	}
	block, _ := list[0].(map[string]any)
	return block
}
