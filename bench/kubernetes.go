package main

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"

	discovery "k8s.io/api/apidiscovery/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/kubernetes/scheme"
)

// kubernetes is as much of a Kubernetes API as ConfigMaps need, of Terraform's provider and of castle.
type kubernetes struct {
	mu      sync.Mutex
	version int
	objects map[string]*corev1.ConfigMap // by path
}

func (k *kubernetes) handler() http.Handler {
	mux := http.NewServeMux()
	document := func(path string, body any) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			reply(w, http.StatusOK, body)
		})
	}
	kind := metav1.TypeMeta{Kind: "APIGroupDiscoveryList", APIVersion: "apidiscovery.k8s.io/v2"}
	document("/version", version.Info{Major: "1", Minor: "36", GitVersion: "v1.36.3"})
	document("/apis", discovery.APIGroupDiscoveryList{TypeMeta: kind})
	configMaps := discovery.APIResourceDiscovery{Resource: "configmaps", Scope: discovery.ScopeNamespace,
		ResponseKind: &metav1.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}}
	v1 := discovery.APIVersionDiscovery{Version: "v1",
		Resources: []discovery.APIResourceDiscovery{configMaps}}
	document("/api", discovery.APIGroupDiscoveryList{TypeMeta: kind, Items: []discovery.APIGroupDiscovery{{
		Versions: []discovery.APIVersionDiscovery{v1}}}})
	const all = "/api/v1/namespaces/{namespace}/configmaps"
	mux.HandleFunc("GET "+all, k.list)
	mux.HandleFunc("POST "+all, k.create)
	mux.HandleFunc("GET "+all+"/{name}", k.get)
	mux.HandleFunc("PATCH "+all+"/{name}", k.patch)
	mux.HandleFunc("DELETE "+all+"/{name}", k.remove)
	return mux
}

func reply(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(body); err != nil {
		panic(http.ErrAbortHandler)
	}
}

// refuse answers with a Status, by which clients recognise that an object is absent.
func refuse(w http.ResponseWriter, err *apierrors.StatusError) {
	reply(w, int(err.ErrStatus.Code), err.ErrStatus)
}

func absent(r *http.Request) *apierrors.StatusError {
	return apierrors.NewNotFound(corev1.Resource("configmaps"), r.PathValue("name"))
}

func (k *kubernetes) list(w http.ResponseWriter, r *http.Request) {
	k.mu.Lock()
	defer k.mu.Unlock()
	list := metav1.PartialObjectMetadataList{
		TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadataList", APIVersion: "meta.k8s.io/v1"}}
	for path, object := range k.objects {
		if strings.HasPrefix(path, r.URL.Path+"/") {
			list.Items = append(list.Items, metav1.PartialObjectMetadata{ObjectMeta: object.ObjectMeta})
		}
	}
	reply(w, http.StatusOK, list)
}

func (k *kubernetes) create(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var object *corev1.ConfigMap
	if err == nil { // Kubernetes' clients write protobuf or JSON
		decoded, _, failed := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
		object, _ = decoded.(*corev1.ConfigMap)
		err = failed
	}
	if err != nil || object == nil {
		refuse(w, apierrors.NewBadRequest(fmt.Sprintf("not a ConfigMap: %v", err)))
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	path := r.URL.Path + "/" + object.Name
	if k.objects[path] != nil {
		refuse(w, apierrors.NewAlreadyExists(corev1.Resource("configmaps"), object.Name))
		return
	}
	k.version++
	object.TypeMeta = metav1.TypeMeta{Kind: "ConfigMap", APIVersion: "v1"}
	object.Namespace, object.ResourceVersion = r.PathValue("namespace"), strconv.Itoa(k.version)
	object.UID = types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", k.version))
	k.objects[path] = object
	reply(w, http.StatusCreated, object)
}

// patch merges the data of a ConfigMap, which is all that the modules change.
func (k *kubernetes) patch(w http.ResponseWriter, r *http.Request) {
	var change struct{ Data map[string]string }
	if err := json.NewDecoder(r.Body).Decode(&change); err != nil {
		refuse(w, apierrors.NewBadRequest(err.Error()))
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	object := k.objects[r.URL.Path]
	if object == nil {
		refuse(w, absent(r))
		return
	}
	k.version++
	object.ResourceVersion = strconv.Itoa(k.version)
	maps.Copy(object.Data, change.Data)
	reply(w, http.StatusOK, object)
}

func (k *kubernetes) get(w http.ResponseWriter, r *http.Request) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if object := k.objects[r.URL.Path]; object != nil {
		reply(w, http.StatusOK, object)
		return
	}
	refuse(w, absent(r))
}

func (k *kubernetes) remove(w http.ResponseWriter, r *http.Request) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.objects[r.URL.Path] == nil {
		refuse(w, absent(r))
		return
	}
	delete(k.objects, r.URL.Path)
	reply(w, http.StatusOK, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status: metav1.StatusSuccess})
}

// end deletes all objects, as they end with their cluster.
func (k *kubernetes) end() {
	k.mu.Lock()
	defer k.mu.Unlock()
	clear(k.objects)
}

// kubeconfig is the access to a server. Anybody may use it.
func kubeconfig(server *httptest.Server) string {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: bench
clusters:
- name: bench
  cluster: {server: %q, certificate-authority-data: %s}
contexts:
- name: bench
  context: {cluster: bench, user: bench}
users:
- name: bench
  user: {token: bench}
`, server.URL, base64.StdEncoding.EncodeToString(ca))
}
