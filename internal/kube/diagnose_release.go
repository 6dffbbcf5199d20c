package kube

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/yaml"
)

// absent explains an object that does not exist although something waits for
// it; otherwise is what there is to say if nothing else explains it.
func (q *inquiry) absent(ctx context.Context, kind, namespace, name, otherwise string) {
	if namespace != "" {
		_, err := q.a.get(ctx, corev1.SchemeGroupVersion.WithResource("namespaces"), "", namespace)
		if apierrors.IsNotFound(err) {
			q.because(fmt.Sprintf("namespace %s does not exist, so that nothing is in it", namespace))
			return
		}
	}
	if home, release, revision := q.releaseOf(ctx, kind, namespace, name); release != "" {
		q.release = home + "/" + release
		// A rollback to the revision that is installed makes what is missing and
		// leaves everything else as it is.
		q.because(fmt.Sprintf("%s is part of the Helm release %s, which is installed: it was deleted since, and Helm and Terraform do not notice that",
			titled(kind, namespace, name), q.release), fmt.Sprintf("helm -n %s rollback %s %s", home, release, revision))
		return
	}
	if namespace != "" {
		q.events(ctx, namespace)
	}
	q.because(titled(kind, namespace, name)+" does not exist: "+otherwise, lookFor(kind, namespace))
}

// unmade is the otherwise of what somebody applies.
const unmade = "nobody has made it, or it was deleted"

// lookFor is the command that shows whether there is anything of a kind.
func lookFor(kind, namespace string) string {
	kind = strings.ToLower(kind)
	if namespace != "" {
		return "kubectl -n " + namespace + " get all," + kind
	}
	return "kubectl get " + kind
}

// releaseOf finds the installed Helm release whose chart has an object, the
// release's namespace and its revision; empty if there is none. What Helm wrote is opened in memory and nothing of it is kept:
// a release holds every value that its chart was given.
func (q *inquiry) releaseOf(ctx context.Context, kind, namespace, name string) (home, release, revision string) {
	body, err := q.a.raw.Get().AbsPath("/api/v1/secrets").Param("fieldSelector", releaseType).
		Param("labelSelector", "owner=helm,status=deployed").SetHeader("Accept", "application/json").Do(ctx).Raw()
	if err != nil {
		q.miss("Helm's releases", err)
		return "", "", ""
	}
	var secrets struct {
		Items []struct {
			Metadata struct {
				Namespace string
				Labels    map[string]string
			}
			Data struct{ Release []byte }
		}
	}
	if json.Unmarshal(body, &secrets) != nil {
		return "", "", ""
	}
	for _, s := range secrets.Items {
		r, ok := openRelease(s.Data.Release)
		if ok && r.has(kind, namespace, name, s.Metadata.Namespace) {
			return s.Metadata.Namespace, r.Name, s.Metadata.Labels["version"]
		}
	}
	return "", "", ""
}

// installed is what matters here of a Helm release.
type installed struct{ Name, Manifest string }

// openRelease reads what Helm keeps of a release: JSON, mostly compressed, in base64.
func openRelease(data []byte) (installed, bool) {
	var r installed
	decoded, err := base64.StdEncoding.DecodeString(string(data))
	if err != nil {
		return r, false
	}
	if bytes.HasPrefix(decoded, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(bytes.NewReader(decoded))
		if err != nil {
			return r, false
		}
		if decoded, err = io.ReadAll(io.LimitReader(z, 16<<20)); err != nil {
			return r, false
		}
	}
	return r, json.Unmarshal(decoded, &r) == nil
}

// has reports whether a release's chart has made an object.
func (r installed) has(kind, namespace, name, home string) bool {
	for document := range strings.SplitSeq(r.Manifest, "\n---") {
		var object struct {
			Kind     string
			Metadata struct{ Name, Namespace string }
		}
		if yaml.Unmarshal([]byte(document), &object) != nil || object.Kind != kind || object.Metadata.Name != name {
			continue
		}
		if namespace == "" || object.Metadata.Namespace == namespace || object.Metadata.Namespace == "" && home == namespace {
			return true
		}
	}
	return false
}
