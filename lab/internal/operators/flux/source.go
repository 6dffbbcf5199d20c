package flux

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ephemeral-castle/castle/lab/internal/operators/cluster"
)

// source is what the source-controller has fetched of an object. A failure is tried again after a pause.
type source struct {
	attempt  string // the last one
	failed   int
	revision string
	folder   string // of the contents; empty where nothing is fetched
	why      *obstacle
}

// pause is the time that fetching takes, and that between two attempts.
const pause = 3 * time.Second

// fetch gives a source its artifact.
func (f *flux) fetch(ctx context.Context, o *unstructured.Unstructured) error {
	generation := o.GetGeneration()
	s := f.sources[o.GetUID()]
	if s == nil {
		s = &source{}
		f.sources[o.GetUID()] = s
	}
	step := fmt.Sprintf("fetch %s %d %s ", o.GetUID(), generation, o.GetAnnotations()[requested])
	if !strings.HasPrefix(s.attempt, step) {
		*s = source{folder: s.folder}
	}
	if s.why != nil && f.w.Passed("retry "+s.attempt, pause) {
		s.failed++
	}
	if attempt := fmt.Sprint(step, s.failed); s.attempt != attempt {
		s.pull(ctx, f, o)
		s.attempt = attempt
	}
	due := s.why == nil && f.w.Passed("store "+s.attempt, pause)
	return report(ctx, f.w, sourcesOf(o.GetKind()), o, func(status map[string]any) {
		handled(status, o)
		switch {
		case s.why != nil:
			cluster.DropCondition(status, "Reconciling")
			f.w.SetCondition(status, "Ready", "False", s.why.reason, s.why.message, generation)
			return
		case !due:
			building := "building artifact: new upstream revision '" + s.revision + "'"
			if o.GetKind() == "OCIRepository" {
				building = "building artifact: new revision '" + s.revision + "' for '" +
					strings.TrimPrefix(cluster.Text(o.Object, "spec", "url"), "oci://") + "'"
			}
			f.w.SetCondition(status, "Reconciling", "True", "Progressing", building, generation)
			f.w.SetCondition(status, "Ready", "Unknown", "Progressing", building, generation)
			return
		}
		f.store(status, o, s.revision)
	})
}

// store writes an artifact into the status of its source.
func (f *flux) store(status map[string]any, o *unstructured.Unstructured, revision string) {
	generation := o.GetGeneration()
	stored := "stored artifact for revision '" + revision + "'"
	if o.GetKind() == "OCIRepository" {
		stored = "stored artifact for digest '" + revision + "'"
	}
	cluster.DropCondition(status, "Reconciling")
	f.w.SetCondition(status, "Ready", "True", "Succeeded", stored, generation)
	f.w.SetCondition(status, "ArtifactInStorage", "True", "Succeeded", stored, generation)
	status["observedGeneration"] = generation
	if artifact, ok := status["artifact"].(map[string]any); ok && artifact["revision"] == revision {
		return
	}
	name := revision[strings.LastIndex(revision, ":")+1:] + ".tar.gz"
	path := strings.ToLower(o.GetKind()) + "/" + o.GetNamespace() + "/" + o.GetName() + "/" + name
	status["artifact"] = map[string]any{
		"revision": revision, "path": path, "lastUpdateTime": f.w.Now().UTC().Format(time.RFC3339),
		"url":    "http://source-controller." + o.GetNamespace() + ".svc.cluster.local./" + path,
		"digest": "sha256:" + hex.EncodeToString(make([]byte, 32)),
	}
}

// pull makes one attempt.
func (s *source) pull(ctx context.Context, f *flux, o *unstructured.Unstructured) {
	ctx, stop := context.WithTimeout(ctx, 10*time.Second)
	defer stop()
	s.why = nil
	secret, err := f.secret(ctx, o, "secretRef")
	address := cluster.Text(o.Object, "spec", "url")
	folder := filepath.Join(f.dir, string(o.GetUID())+"-1")
	if s.folder == folder { // what is fetched stays until there is something newer
		folder = filepath.Join(f.dir, string(o.GetUID())+"-2")
	}
	switch {
	case err != nil && o.GetKind() == "OCIRepository":
		s.why = &obstacle{"AuthenticationFailed", "failed to get credential: " + err.Error()}
	case err != nil:
		s.why = &obstacle{"AuthenticationFailed", err.Error()}
	case o.GetKind() == "OCIRepository":
		var certificate *corev1.Secret
		if certificate, err = f.secret(ctx, o, "certSecretRef"); err == nil {
			s.revision, s.why = pullArtifact(ctx, o, secret, certificate, folder)
			break
		}
		s.why = &obstacle{"AuthenticationFailed", fmt.Sprintf("failed to generate transport for '%s': %v",
			address, err)}
	default:
		s.revision, s.why = clone(ctx, o, secret, folder)
	}
	if s.why == nil {
		s.folder = folder
	}
}

// secret is the one that a source names in a field; nil if it names none.
func (f *flux) secret(ctx context.Context, o *unstructured.Unstructured,
	field string) (*corev1.Secret, error) {
	name := cluster.Text(o.Object, "spec", field, "name")
	if name == "" {
		return nil, nil
	}
	secret, err := f.w.Typed.CoreV1().Secrets(o.GetNamespace()).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("failed to get secret '%s/%s': %w", o.GetNamespace(), name, err)
	}
	return secret, nil
}

func branchOf(o *unstructured.Unstructured) string {
	return cmp.Or(cluster.Text(o.Object, "spec", "ref", "branch"), "master")
}

// emptied is a folder for new contents.
func emptied(folder string) error {
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	return os.MkdirAll(folder, 0o700)
}
