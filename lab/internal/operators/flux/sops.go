package flux

import (
	"cmp"
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"filippo.io/age"
	"filippo.io/age/armor"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ephemeral-castle/castle/internal/gitops"

	"github.com/ephemeral-castle/castle/lab/internal/operators/cluster"
)

// decryption is the keys with which a Kustomization decrypts.
type decryption struct {
	identities []age.Identity
	// standIn is that one of the identities is the rehearsal's: it opens everything, and leaves each value as
	// it is. A rehearsal has no key of the user's.
	standIn bool
}

// madeUp is the value of a secret whose form the lab does not know.
var madeUp = regexp.MustCompile(`^[0-9a-f]{40}$`)

// importKeys reads the keys in a Secret: those of age, which are all that the lab knows.
func (t *Fleet) importKeys(k *gitops.Kustomization, data map[string]string) (d decryption, err error) {
	for name, text := range data {
		if !strings.HasSuffix(name, ".agekey") || madeUp.MatchString(text) {
			d.standIn = true // of PGP, of a cloud, or a secret of another name
			continue
		}
		identities, err := age.ParseIdentities(strings.NewReader(text))
		if err != nil {
			return d, fmt.Errorf("failed to import '%s' data from sops decryption Secret '%s/%s': %w", name,
				k.Key.Namespace, k.Keys, err)
		}
		d.identities = append(d.identities, identities...)
		d.standIn = d.standIn || t.age != "" && strings.Contains(text, t.age)
	}
	return d, nil
}

// decrypt decrypts a Secret, as SOPS has encrypted it.
func (d decryption) decrypt(k *gitops.Kustomization, o *unstructured.Unstructured) error {
	if _, encrypted := o.Object["sops"]; !encrypted || o.GetKind() != "Secret" {
		return nil
	}
	if !k.Decrypts {
		//lint:ignore ST1005 it is the text of kustomize-controller
		return fmt.Errorf("Secret/%s/%s is SOPS encrypted, configuring decryption is required for this "+
			"secret to be reconciled", o.GetNamespace(), o.GetName())
	}
	if d.standIn || k.Keys == "" { // a cloud's key needs no Secret
		return placeholders(o)
	}
	key, err := d.dataKey(o)
	if err == nil {
		delete(o.Object, "sops")
		err = openAll(key, nil, o.Object)
	}
	if err != nil {
		return fmt.Errorf("decryption failed for 'Secret.v1.[noGrp]/%s': failed to decrypt and format "+
			"'%s/%s' Secret data: %w", o.GetName(), o.GetNamespace(), o.GetName(), err)
	}
	return nil
}

// placeholders keeps the encrypted texts as values.
func placeholders(o *unstructured.Unstructured) error {
	delete(o.Object, "sops")
	data, _, err := unstructured.NestedStringMap(o.Object, "data")
	for name, value := range data {
		data[name] = base64.StdEncoding.EncodeToString([]byte(value))
	}
	if len(data) > 0 {
		err = errors.Join(err, unstructured.SetNestedStringMap(o.Object, data, "data"))
	}
	return err
}

// dataKey opens the key of a file with that of one of its recipients. The texts are those of SOPS, whose
// errors are wrapped in lines.
func (d decryption) dataKey(o *unstructured.Unstructured) ([]byte, error) {
	recipients, _, err := unstructured.NestedSlice(o.Object, "sops", "age")
	if err != nil {
		return nil, err
	}
	groups := "Group 0: FAILED"
	for _, r := range recipients {
		one, _ := r.(map[string]any)
		why := errors.New("failed to load age identities")
		if len(d.identities) > 0 {
			var opened io.Reader
			opened, why = age.Decrypt(armor.NewReader(strings.NewReader(cluster.Text(one, "enc"))),
				d.identities...)
			if why == nil {
				return io.ReadAll(opened)
			}
			why = fmt.Errorf("failed to create reader for decrypting sops data key with\n      | age: %w",
				why)
		}
		groups += fmt.Sprintf("\n  %s: FAILED\n    - | %v", cluster.Text(one, "recipient"), why)
	}
	//lint:ignore ST1005 it is the text of SOPS
	return nil, fmt.Errorf("cannot get sops data key: Failed to get the data key required to decrypt the "+
		"SOPS file.\n\n%s\n\nRecovery failed because no master key was able to decrypt the file. In\n"+
		"order for SOPS to recover the file, at least one key has to be successful,\nbut none were.", groups)
}

// sealed is a value that SOPS has encrypted.
var sealed = regexp.MustCompile(`^ENC\[AES256_GCM,data:(.*),iv:(.+),tag:(.+),type:(.+)\]$`)

// openAll decrypts the texts below a value; path are the keys that lead to it.
func openAll(key []byte, path []string, in map[string]any) error {
	for name, v := range in {
		opened, err := open(key, append(slices.Clone(path), name), v)
		if err != nil {
			return fmt.Errorf("error decrypting sops tree: %w", err)
		}
		in[name] = opened
	}
	return nil
}

func open(key []byte, path []string, v any) (any, error) {
	switch v := v.(type) {
	case map[string]any:
		return v, openAll(key, path, v)
	case []any:
		for i, element := range v { // an index is no part of the path
			opened, err := open(key, path, element)
			if err != nil {
				return nil, err
			}
			v[i] = opened
		}
		return v, nil
	case string:
		found := sealed.FindStringSubmatch(v)
		if found == nil {
			return v, nil
		}
		var parts [3][]byte
		for i := range parts {
			var err error
			if parts[i], err = base64.StdEncoding.DecodeString(found[i+1]); err != nil {
				return nil, err
			}
		}
		return openText(key, strings.Join(path, ":")+":", parts[0], parts[1], parts[2])
	}
	return v, nil
}

// openText decrypts one text, which belongs to its place.
func openText(key []byte, place string, data, iv, tag []byte) (string, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return "", err
	}
	gcm, err := cipher.NewGCMWithNonceSize(block, cmp.Or(len(iv), 1))
	if err != nil {
		return "", err
	}
	text, err := gcm.Open(nil, iv, append(data, tag...), []byte(place))
	if err != nil {
		return "", fmt.Errorf("could not decrypt with AES_GCM: %w", err)
	}
	return string(text), nil
}
