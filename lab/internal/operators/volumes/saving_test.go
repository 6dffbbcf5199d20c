package volumes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	untypedfake "k8s.io/client-go/dynamic/fake"

	"github.com/ephemeral-castle/castle/lab/internal/backupstore"
	"github.com/ephemeral-castle/castle/lab/internal/objectstore/objectstoretest"
	"github.com/ephemeral-castle/castle/lab/internal/operators/cluster"
)

// newSaving is a stage whose backup target is a server's bucket, with the admission and the finalizers of a
// real API server.
func newSaving(t *testing.T, server *objectstoretest.Server, faults cluster.Faults) *stage {
	t.Helper()
	s := newStageAt(t, 0, faults, "w-01", "w-02")
	s.fake = s.w.Untyped.(*untypedfake.FakeDynamicClient)
	s.w.Untyped = admitting{s.fake, t, s}
	core := s.w.Typed.CoreV1()
	if _, err := core.Secrets(namespace).Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "bucket"},
		Data: map[string][]byte{backupstore.AccessKey: []byte(objectstoretest.AccessKey),
			backupstore.SecretKey: []byte(objectstoretest.SecretKey),
			backupstore.Endpoints: []byte(server.Endpoint), backupstore.Cert: server.Authority},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := core.ConfigMaps(namespace).Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: defaultResource},
		Data: map[string]string{"default-resource.yaml": "backup-target: s3://" + objectstoretest.Bucket +
			"@" + objectstoretest.Region + "/one\nbackup-target-credential-secret: bucket\n" +
			"backupstore-poll-interval: \"0\"\n"},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.settle(t)
	return s
}

// admitting is a client whose API server calls the webhooks, and knows finalizers.
type admitting struct {
	dynamic.Interface
	t *testing.T
	s *stage
}

func (a admitting) Resource(of schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	return admittingAll{a.Interface.Resource(of), a, of}
}

type admittingAll struct {
	dynamic.NamespaceableResourceInterface
	a  admitting
	of schema.GroupVersionResource
}

func (a admittingAll) Namespace(name string) dynamic.ResourceInterface {
	return admittingSome{a.NamespaceableResourceInterface.Namespace(name), a.a, a.of}
}

type admittingSome struct {
	dynamic.ResourceInterface
	a  admitting
	of schema.GroupVersionResource
}

func (a admittingSome) Create(ctx context.Context, o *unstructured.Unstructured, options metav1.CreateOptions,
	subresources ...string) (*unstructured.Unstructured, error) {
	if err := a.a.s.admit(a.a.t, a.of.Resource, o); err != nil {
		return nil, err
	}
	o.SetUID(types.UID(a.of.Resource + "/" + o.GetName()))
	return a.ResourceInterface.Create(ctx, o, options, subresources...)
}

func (a admittingSome) Delete(ctx context.Context, name string, options metav1.DeleteOptions,
	subresources ...string) error {
	o, err := a.Get(ctx, name, metav1.GetOptions{})
	if err != nil || len(o.GetFinalizers()) == 0 {
		return errors.Join(err, a.ResourceInterface.Delete(ctx, name, options, subresources...))
	}
	now := metav1.NewTime(a.a.s.time)
	o.SetDeletionTimestamp(&now)
	_, err = a.Update(ctx, o, metav1.UpdateOptions{})
	return err
}

// admit does what the webhooks of Longhorn do.
func (s *stage) admit(t *testing.T, plural string, o *unstructured.Unstructured) error {
	raw, err := json.Marshal(o.Object)
	if err != nil {
		return err
	}
	r := &admissionv1.AdmissionRequest{Operation: admissionv1.Create, Name: o.GetName(), Namespace: namespace,
		Resource: metav1.GroupVersionResource{Resource: plural}, Object: runtime.RawExtension{Raw: raw}}
	text, err := s.v.Mutate(t.Context(), r)
	if err != nil {
		return err
	}
	var patch []struct {
		Path  string
		Value any
	}
	if len(text) > 0 {
		if err := json.Unmarshal(text, &patch); err != nil {
			return err
		}
	}
	for _, one := range patch {
		path := strings.Split(one.Path, "/")[1:]
		if err := unstructured.SetNestedField(o.Object, one.Value, path...); err != nil {
			return err
		}
	}
	if r.Object.Raw, err = o.MarshalJSON(); err != nil {
		return err
	}
	if err := o.UnmarshalJSON(r.Object.Raw); err != nil {
		return err
	}
	return s.v.Validate(t.Context(), r)
}

// settle looks until all that has begun is done. A second passes with each look: what is asked for in the
// same second as the last one is not seen.
func (s *stage) settle(t *testing.T) {
	t.Helper()
	for range 8 {
		s.later(t, time.Second)
		s.v.tasks.wait()
		for _, plural := range finalized() {
			all, err := s.w.List(t.Context(), Resource(plural), namespace)
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range all {
				if o.GetDeletionTimestamp() != nil && len(o.GetFinalizers()) == 0 {
					if err := s.fake.Tracker().Delete(Resource(plural), namespace, o.GetName()); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
	}
}

func (s *stage) create(t *testing.T, plural, text string) error {
	t.Helper()
	o := &unstructured.Unstructured{}
	kind := map[string]string{"volumes": "Volume", "snapshots": "Snapshot", "backups": "Backup"}[plural]
	if err := o.UnmarshalJSON([]byte(`{"apiVersion":"` + apiVersion + `","kind":"` + kind + `",` +
		text[1:])); err != nil {
		t.Fatal(err)
	}
	_, err := s.w.Untyped.Resource(Resource(plural)).Namespace(namespace).Create(t.Context(), o,
		metav1.CreateOptions{})
	return err
}

func (s *stage) mustCreate(t *testing.T, plural, text string) {
	t.Helper()
	if err := s.create(t, plural, text); err != nil {
		t.Fatal(err)
	}
	s.settle(t)
}

// saves makes a snapshot and a backup of the volume of the claim "data".
func (s *stage) saves(t *testing.T, name string) {
	t.Helper()
	s.mustCreate(t, "snapshots", `{"metadata":{"name":"snap-`+name+`","namespace":"`+namespace+
		`"},"spec":{"volume":"pvc-data","createSnapshot":true}}`)
	s.mustCreate(t, "backups", `{"metadata":{"name":"backup-`+name+`","namespace":"`+namespace+
		`","labels":{"backup-volume":"pvc-data"}},"spec":{"snapshotName":"snap-`+name+`"}}`)
}

// object reads one of Longhorn's.
func (s *stage) object(t *testing.T, plural, name string) map[string]any {
	t.Helper()
	o, err := s.w.Untyped.Resource(Resource(plural)).
		Namespace(namespace).
		Get(t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return o.Object
}

// has compares fields of a status.
func (s *stage) has(t *testing.T, plural, name string, want map[string]any) {
	t.Helper()
	status := cluster.Nested(s.object(t, plural, name), "status")
	for field, value := range want {
		if got := fmt.Sprint(status[field]); got != fmt.Sprint(value) {
			t.Errorf("%s %s: %s is %s, want %v", plural, name, field, got, value)
		}
	}
}

// annotate asks the application for something.
func (s *stage) write(t *testing.T, pvc, more string) {
	t.Helper()
	if _, err := s.w.Typed.CoreV1().PersistentVolumeClaims("db").Patch(t.Context(), pvc, types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"`+writeText+`":"`+more+`"}}}`),
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	s.settle(t)
}

// reads is what the application reads, or "-".
func (s *stage) reads(t *testing.T, pvc string) string {
	t.Helper()
	found, err := s.w.Typed.CoreV1().PersistentVolumeClaims("db").Get(t.Context(), pvc, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if content, shows := found.Annotations[contentText]; shows {
		return content
	}
	return "-"
}

// objects are the keys in the bucket, with their folders of digits left out.
func objects(t *testing.T, server *objectstoretest.Server) (all []string) {
	t.Helper()
	err := filepath.WalkDir(server.Folder, func(file string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			all = append(all, filepath.Base(file))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// restored makes a volume of a backup, its PersistentVolume and its claim, all by hand.
func (s *stage) restored(t *testing.T, name, from string) {
	t.Helper()
	s.mustCreate(t, "volumes", `{"metadata":{"name":"`+name+`","namespace":"`+namespace+
		`"},"spec":{"size":"4096","fromBackup":"`+from+`","numberOfReplicas":2,"frontend":"blockdev"}}`)
}

func (s *stage) claimOf(t *testing.T, volume string) {
	t.Helper()
	if _, err := s.w.Typed.CoreV1().PersistentVolumes().Create(t.Context(), &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: volume},
		Spec: corev1.PersistentVolumeSpec{
			ClaimRef: &corev1.ObjectReference{Namespace: "db", Name: volume},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: driver, VolumeHandle: volume}}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	claims := s.w.Typed.CoreV1().PersistentVolumeClaims("db")
	if _, err := claims.Create(t.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "db", Name: volume},
		Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: volume},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.settle(t)
}
