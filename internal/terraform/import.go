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
	if err := r.beforeWrite(ctx); err != nil {
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
	if err := r.beforeWrite(ctx); err != nil {
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

// Identity tells how a plan identifies an object of a type, by templates whose {names} are its attributes.
type Identity struct {
	ID   string // by which `terraform import` takes it: {namespace}/{name}
	UUID string // of a machine: {smbios.uuid} is an attribute of its only block smbios, or an entry of a map
}

var attribute = regexp.MustCompile(`\{[\w.]+\}`)

// identity returns an object's id and uuid, each empty if the values lack it, or if castle does not know the
// type. unknown marks values that are known only after apply.
func (r *Root) identity(typ string, values, unknown any) (id, uuid string) {
	templates := r.Identities[typ]
	from, _ := values.(map[string]any)
	id = templates.ID
	switch {
	case typ == "helm_release":
		id = "{namespace}/{name}"
	case strings.HasPrefix(typ, "kubernetes_"):
		// The provider gives each namespaced kind an argument for its namespace.
		id, from = "{name}", blockOf(values, "metadata")
		_, namespaced := from["namespace"]
		if _, later := blockOf(unknown, "metadata")["namespace"]; namespaced || later {
			id = "{namespace}/{name}"
		}
	}
	return Identity{id, templates.UUID}.Of(from)
}

// Of returns the id and the uuid of an object with these attributes, each empty if one of them is not known.
func (i Identity) Of(attributes map[string]any) (id, uuid string) {
	return fill(i.ID, attributes), strings.ToLower(fill(i.UUID, attributes))
}

func fill(template string, from map[string]any) string {
	known := true
	text := attribute.ReplaceAllStringFunc(template, func(name string) string {
		name, in := strings.Trim(name, "{}"), from
		if block, of, nested := strings.Cut(name, "."); nested {
			name, in = of, blockOf(from, block)
		}
		switch value := in[name].(type) {
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
	return text
}

// blockOf returns the values of a block that may be there once, or of a map.
func blockOf(values any, name string) map[string]any {
	v, _ := values.(map[string]any)
	if entries, is := v[name].(map[string]any); is {
		return entries
	}
	list, _ := v[name].([]any)
	if len(list) != 1 {
		return nil
	}
	block, _ := list[0].(map[string]any)
	return block
}
