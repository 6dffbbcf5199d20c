package diagnose

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/siderolabs/gen/xslices"
	"sigs.k8s.io/yaml"

	"github.com/ephemeral-castle/castle/internal/kube/client"
	"github.com/ephemeral-castle/castle/internal/secret"
)

// A Secret is never kept, and its data must not appear elsewhere either: in a log that prints a password, an
// event, an annotation. So the values of all Secrets are read first, only to hide them in everything else.
// Where they cannot be read, no log is kept.

// shortestPart is the minimum length of a part of a Secret's value, such as a setting, that castle hides.
const shortestPart = 8

// secretList holds the relevant fields of a list of Secrets.
type secretList struct {
	Items []struct {
		Metadata struct {
			Namespace string
			Labels    map[string]string
		}
		Data map[string][]byte
	}
}

func (e *evidence) listSecrets(ctx context.Context, fields, labels string) (list secretList, err error) {
	body, err := e.api.Raw.Get().AbsPath("/api/v1/secrets").Param("fieldSelector", fields).
		Param("labelSelector", labels).SetHeader("Accept", "application/json").Do(ctx).Raw()
	if err == nil && json.Unmarshal(body, &list) != nil {
		err = errUnreadable // the parser's error could quote a Secret
	}
	return list, err
}

var errUnreadable = errors.New("the API's list of Secrets is not readable")

// readSecrets reads the values to hide; an error means that the API does not answer. Helm's own Secrets are
// left out: they hold whole charts, which are no secret, and their values, which castle's own masking knows.
func (e *evidence) readSecrets(ctx context.Context, bound time.Duration) error {
	ctx, stop := context.WithTimeout(ctx, bound)
	defer stop()
	list, err := e.listSecrets(ctx, "type!=helm.sh/release.v1", "")
	switch {
	case client.Message(err) != "", errors.Is(err, errUnreadable):
		e.miss("secrets, to hide their data", err)
		return nil
	case err != nil:
		return err
	}
	for _, s := range list.Items {
		for key, value := range s.Data {
			if key != "namespace" { // of a ServiceAccount's token: the Secret's own namespace
				e.secrets = append(e.secrets, parts(string(value))...)
			}
		}
	}
	e.redacts = true
	return nil
}

// parts returns the strings of a Secret's value to hide: a short text or a key as a whole, and the single
// values of a settings file.
func parts(value string) []string {
	value = strings.TrimSpace(value)
	var document any
	switch {
	case strings.Contains(value, "-----BEGIN"):
		return []string{value}
	case strings.HasPrefix(value, "{") && json.Unmarshal([]byte(value), &document) == nil:
		return leaves(document)
	case !strings.Contains(value, "\n"):
		return []string{value}
	}
	var all []string
	for line := range strings.Lines(value) {
		line = strings.TrimSpace(line)
		if at := strings.IndexAny(line, ":="); at >= 0 {
			line = line[at+1:]
		}
		if line = strings.Trim(strings.TrimSpace(line), `"'`); len(line) >= shortestPart {
			all = append(all, line)
		}
	}
	return all
}

func leaves(document any) []string {
	var all []string
	switch x := document.(type) {
	case map[string]any:
		for _, inner := range x {
			all = append(all, leaves(inner)...)
		}
	case []any:
		all = append(all, xslices.FlatMap(x, leaves)...)
	case string:
		if len(x) >= shortestPart {
			all = append(all, x)
		}
	}
	return all
}

// redactor hides the Secrets' data and likely credentials. A value that is also the name of a file, such as
// a database's, is no secret.
func redactor(secrets []string, names string) func(string) string {
	masker := &secret.Masker{}
	masker.Add(slices.DeleteFunc(slices.Clone(secrets),
		func(s string) bool { return strings.Contains(names, s) })...)
	return func(text string) string { return secret.HideLikely(masker.Hide(text)) }
}

// lastApplied is a second copy of an object, with everything that was in it.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// shown is a copy of an object without likely credentials. Secrets and ConfigMaps keep their keys' names.
func shown(object *client.Object) map[string]any {
	copied := object.DeepCopy()
	copied.SetManagedFields(nil)
	annotations := copied.GetAnnotations()
	if _, held := annotations[lastApplied]; held {
		annotations[lastApplied] = secret.Mask
		copied.SetAnnotations(annotations)
	}
	if slices.Contains([]string{"Secret", "ConfigMap"}, copied.GetKind()) {
		for _, field := range []string{"data", "stringData", "binaryData"} {
			if values, ok := copied.Object[field].(map[string]any); ok {
				for key := range values {
					values[key] = secret.Mask
				}
			}
		}
		return copied.Object
	}
	hidden, _ := hide(copied.Object).(map[string]any)
	return hidden
}

// hide goes through everything in an object. An environment variable has its name beside its value,
// everything else has it before.
func hide(value any) any {
	switch x := value.(type) {
	case map[string]any:
		name, _ := x["name"].(string)
		for key, inner := range x {
			held, isText := inner.(string)
			switch {
			case isText && (secret.LikelyName(key) || key == "value" && secret.LikelyName(name)):
				x[key] = secret.Mask
			case isText && key == "caBundle":
				x[key] = certificatesIn(held)
			default:
				x[key] = hide(inner)
			}
		}
	case []any:
		for i := range x {
			x[i] = hide(x[i])
		}
	case string:
		return secret.HideLikely(x)
	}
	return value
}

// certificatesIn describes in a few words the certificates in a caBundle.
func certificatesIn(bundle string) string {
	text, err := base64.StdEncoding.DecodeString(bundle)
	if err != nil {
		return "(no base64)"
	}
	var all []string
	for _, c := range client.Certificates(text) {
		all = append(all, fmt.Sprintf("%q, valid from %s to %s",
			cmp.Or(c.Subject.CommonName, c.Subject.String()),
			c.NotBefore.UTC().Format(time.RFC3339), c.NotAfter.UTC().Format(time.RFC3339)))
	}
	if len(all) == 0 {
		return "(no certificate)"
	}
	return "(certificate of " + strings.Join(all, "; ") + ")"
}

// installed is a Helm release in its namespace.
type installed struct{ name, namespace, revision string }

// releaseOf finds the installed Helm release whose chart contains an object. Helm's record is opened in
// memory and none of it is kept: it holds every value of the chart.
func (e *evidence) releaseOf(ctx context.Context, m client.Reference) (r installed, found bool) {
	list, err := e.listSecrets(ctx, client.ReleaseType, "owner=helm,status=deployed")
	if err != nil {
		e.miss("Helm's releases", err)
	}
	for _, s := range list.Items {
		r, err := client.ReadRelease(s.Data["release"])
		if err == nil && contains(r.Manifest, m, s.Metadata.Namespace) {
			return installed{r.Name, s.Metadata.Namespace, s.Metadata.Labels["version"]}, true
		}
	}
	return installed{}, false
}

// contains reports whether a release's manifest has an object; home is the release's namespace.
func contains(manifest string, m client.Reference, home string) bool {
	for document := range strings.SplitSeq(manifest, "\n---") {
		var object struct {
			Kind     string
			Metadata struct{ Name, Namespace string }
		}
		if yaml.Unmarshal([]byte(document), &object) != nil || object.Kind != m.Kind ||
			object.Metadata.Name != m.Name {
			continue
		}
		if m.Namespace == "" || cmp.Or(object.Metadata.Namespace, home) == m.Namespace {
			return true
		}
	}
	return false
}
