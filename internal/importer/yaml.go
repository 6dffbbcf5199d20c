package importer

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/siderolabs/gen/xslices"
	"go.yaml.in/yaml/v3"

	"github.com/ephemeral-castle/castle/internal/syntax"
)

// folder reads the files of an import, none outside of it.
type folder struct {
	root *os.Root
	name string // as the user wrote it
}

func openFolder(name string) (*folder, error) {
	root, err := os.OpenRoot(name)
	return &folder{root, name}, err
}

// shown is the name of a file for the user.
func (f *folder) shown(name string) string { return filepath.Join(f.name, name) }

// documents parses a YAML text.
func documents(text []byte) (all []*yaml.Node, err error) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var n yaml.Node
		if err := decoder.Decode(&n); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		if root := follow(&n); root.Tag != "!!null" {
			all = append(all, root)
		}
	}
}

// configuration reads a file with one mapping.
func (f *folder) configuration(name string) (*yaml.Node, error) {
	text, err := f.root.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s does not exist", f.shown(name))
	} else if err != nil {
		return nil, err
	}
	roots, err := documents(text)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", f.shown(name), err)
	case len(roots) != 1 || roots[0].Kind != yaml.MappingNode:
		return nil, fmt.Errorf("%s: is not one YAML mapping, such as clusterName: green", f.shown(name))
	case child(roots[0], "sops") != nil:
		return nil, fmt.Errorf("%s: is encrypted by SOPS; import a decrypted copy", f.shown(name))
	}
	return roots[0], nil
}

// follow is the value that a document or an alias stands for.
func follow(n *yaml.Node) *yaml.Node {
	switch {
	case n.Kind == yaml.DocumentNode && len(n.Content) > 0:
		return follow(n.Content[0])
	case n.Kind == yaml.AliasNode:
		return n.Alias // never an alias itself
	}
	return n
}

// pairs calls do for each key of a mapping.
func pairs(n *yaml.Node, do func(key, value *yaml.Node)) {
	for i := 0; n != nil && n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		do(n.Content[i], follow(n.Content[i+1]))
	}
}

// child is a value of a mapping by its keys; nil if there is none.
func child(n *yaml.Node, keys ...string) *yaml.Node {
	for _, key := range keys {
		var next *yaml.Node
		pairs(n, func(k, v *yaml.Node) {
			if k.Value == key {
				next = v
			}
		})
		n = next
	}
	return n
}

// cut removes a value of a mapping, and the mappings that are empty without it.
func cut(n *yaml.Node, keys ...string) {
	for i := 0; n != nil && n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		if value := follow(n.Content[i+1]); n.Content[i].Value == keys[0] {
			if len(keys) > 1 {
				cut(value, keys[1:]...)
			}
			if len(keys) == 1 || value.Kind == yaml.MappingNode && len(value.Content) == 0 {
				n.Content = slices.Delete(n.Content, i, i+2)
			}
			return
		}
	}
}

// items are the values of a list.
func items(n *yaml.Node) (list []*yaml.Node) {
	if n != nil && n.Kind == yaml.SequenceNode {
		list = xslices.Map(n.Content, follow)
	}
	return list
}

const secretFix = "keep it in the store of the cluster's secrets, and wire it in cluster.hcl"

var (
	// environment is a variable as talhelper substitutes it.
	environment = regexp.MustCompile(`\$(\{[^}]*\}|[A-Za-z_]\w*)`)
	// secretKey is a key of Talos' configuration whose value is a secret.
	secretKey = regexp.MustCompile(`(?i)(passphrase|password|privatekey|presharedkey|authkey|token|secret)$`)
	// secretText is in the content of a file, or in a variable, that holds a secret.
	secretText = regexp.MustCompile(`(?i)(passphrase|password|private.?key|auth.?key|token|secret)`)
)

// unresolved is why a text is not yet a value, "" if it is one.
func unresolved(text string) (reason, fix string) {
	switch {
	case environment.MatchString(text):
		return "holds " + environment.FindString(text) + ", and castle evaluates no environment",
			"write its value in terraform.tfvars"
	case strings.Contains(text, "{{"):
		return "is a template, and castle renders none", "write its result in terraform.tfvars"
	case strings.HasPrefix(text, "ENC["), strings.Contains(text, "ref+"):
		return "is a secret of SOPS or vals, and castle opens none", secretFix
	}
	return "", ""
}

// secretIn is the key of a secret in a decoded value, "" if there is none.
func secretIn(key string, v any) (found string) {
	switch v := v.(type) {
	case string:
		file := slices.Contains([]string{"content", "contents", "environment"}, key)
		if v != "" && secretKey.MatchString(key) || file && secretText.MatchString(v) {
			return key
		}
	case map[string]any:
		for key, e := range v {
			found = max(found, secretIn(key, e))
		}
	case []any:
		for _, e := range v {
			found = max(found, secretIn(key, e))
		}
	}
	return found
}

func (d *draft) at(n *yaml.Node) place { return place{d.file, n.Line} }

// field takes over the value of a key; subject is its path.
type field func(subject string, n *yaml.Node)

// fields calls the field of each key of a mapping. A nil one means nothing here; a key without one is a gap.
func (d *draft) fields(subject string, n *yaml.Node, known map[string]field) {
	if n.Kind != yaml.MappingNode {
		d.gap(d.at(n), subject, "is no mapping", "write it in terraform.tfvars")
	}
	pairs(n, func(key, value *yaml.Node) {
		name := strings.TrimPrefix(subject+"."+key.Value, ".")
		if take, is := known[key.Value]; take != nil {
			take(name, value)
		} else if !is {
			names := slices.Sorted(maps.Keys(known))
			d.gap(d.at(key), name, "is a field that castle does not know"+syntax.DidYouMean(key.Value, names),
				"write what it does as a patch in talos_config_patches")
		}
	})
}

// text is the value of a scalar. One that is not final is a gap.
func (d *draft) text(subject string, n *yaml.Node) (string, bool) {
	reason, fix := unresolved(n.Value)
	if n.Kind != yaml.ScalarNode {
		reason, fix = "is no text", "write it in terraform.tfvars"
	}
	if reason != "" {
		d.gap(d.at(n), subject, reason, fix)
	}
	return n.Value, reason == "" && n.Tag != "!!null"
}

// string returns a field that is a text.
func (d *draft) string(do func(at place, text string)) field {
	return func(subject string, n *yaml.Node) {
		if v, is := d.text(subject, n); is {
			do(d.at(n), v)
		}
	}
}

// refuse returns a field whose truth is a gap.
func (d *draft) refuse(reason, fix string) field {
	return func(subject string, n *yaml.Node) {
		if !slices.Contains([]string{"", "false", "null"}, n.Value) {
			d.gap(d.at(n), subject, reason, fix)
		}
	}
}

// list are the texts of a list.
func (d *draft) list(subject string, n *yaml.Node) (values []string) {
	for i, e := range items(n) {
		if v, is := d.text(fmt.Sprintf("%s[%d]", subject, i), e); is {
			values = append(values, v)
		}
	}
	return values
}

// lists returns a field that is a list of texts, a variable.
func (d *draft) lists(variable string) field {
	return func(subject string, n *yaml.Node) { d.set(d.at(n), variable, texts(d.list(subject, n))) }
}
