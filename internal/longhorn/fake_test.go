package longhorn

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/store"
	"github.com/ephemeral-castle/castle/internal/survivor/bucket"
)

const (
	api     = "/apis/longhorn.io/v1beta2/namespaces/longhorn-system/"
	claims  = "/api/v1/namespaces/web/persistentvolumeclaims/"
	pods    = "/api/v1/namespaces/web/pods/"
	pvs     = "/api/v1/persistentvolumes/"
	deploys = "/apis/apps/v1/namespaces/web/deployments/"
)

// cluster is an API with the objects that a test places, and a Longhorn that does at once what its objects
// say. Its volumes have content, its backups are files of a folder.
type cluster struct {
	*httptest.Server
	t       *testing.T
	in      store.Store
	mu      sync.Mutex
	objects map[string]map[string]any // by path
	content map[string][]string       // the blocks of a volume, by its name
	kept    map[string]saved          // by the name of a backup
	damage  func(volume string)       // what a restore does to the content
	asked   []string                  // requests that change something
	stuck   string                    // a Deployment whose Pod does not end
}

// newCluster starts a cluster and returns the data of its namespace web.
func newCluster(t *testing.T) (*cluster, *volumes) {
	t.Helper()
	c := &cluster{t: t, objects: map[string]map[string]any{}, content: map[string][]string{},
		kept: map[string]saved{}, damage: func(string) {}}
	dir := t.TempDir()
	open := func() (store.Store, error) { return store.Open(context.Background(), "file://"+dir) }
	var err error
	if c.in, err = open(); err != nil {
		t.Fatal(err)
	}
	c.Server = httptest.NewUnstartedServer(http.HandlerFunc(c.serve))
	c.Config.ErrorLog = log.New(io.Discard, "", 0)
	c.StartTLS()
	t.Cleanup(c.Close)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate().Raw})
	v := &volumes{name: "longhorn.files", namespace: "web", path: "/lh", url: "s3://castle@eu/lh",
		target: gate.Target{Kubeconfig: fmt.Appendf(nil, `
apiVersion: v1
kind: Config
current-context: blue
clusters: [{name: blue, cluster: {server: %q, certificate-authority-data: %s}}]
contexts: [{name: blue, context: {cluster: blue, user: admin}}]
users: [{name: admin, user: {token: a}}]`, c.URL, base64.StdEncoding.EncodeToString(authority))}}
	v.documents = &bucket.Documents{Open: open, Folder: "/lh/castle/files", Valid: v.valid}
	c.add(api+"backuptargets/default", `{kind: BackupTarget, spec: {backupTargetURL: s3://castle@eu/lh/},
		status: {available: true}}`)
	c.add(api+"nodes/w-01", `{kind: Node, spec: {allowScheduling: true},
		status: {conditions: [{type: Schedulable, status: "True"}]}}`)
	return c, v
}

// add places an object at its path.
func (c *cluster) add(at, object string) {
	c.t.Helper()
	o := map[string]any{}
	if err := yaml.Unmarshal([]byte(object), &o); err != nil {
		c.t.Fatalf("%s: %v", at, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.place(at, o)
}

func (c *cluster) place(at string, o map[string]any) {
	meta, _ := o["metadata"].(map[string]any)
	if meta == nil {
		meta = map[string]any{}
		o["metadata"] = meta
	}
	meta["name"] = path.Base(at)
	meta["uid"] = at
	if _, rest, is := strings.Cut(at, "/namespaces/"); is {
		meta["namespace"], _, _ = strings.Cut(rest, "/")
	}
	c.objects[at] = o
}

// volume places a claim that is bound to a volume with some blocks.
func (c *cluster) volume(pvc string, blocks ...string) {
	name := "pvc-" + pvc
	c.content[name] = blocks
	c.add(claims+pvc, `{kind: PersistentVolumeClaim, metadata: {labels: {app: `+pvc+`}}, spec: {volumeName: `+
		name+`, storageClassName: longhorn, accessModes: [ReadWriteOnce],
		resources: {requests: {storage: 1Gi}}}, status: {phase: Bound}}`)
	c.add(pvs+name, `{kind: PersistentVolume, spec: {persistentVolumeReclaimPolicy: Delete,
		csi: {driver: driver.longhorn.io, fsType: ext4, volumeHandle: `+name+`}}}`)
	c.add(api+"volumes/"+name, `{kind: Volume, spec: {size: "1073741824", numberOfReplicas: 2,
		dataEngine: v1}, status: {state: detached, robustness: unknown}}`)
}

// app places a Deployment with a Pod that uses a claim.
func (c *cluster) app(name, pvc string) {
	uses := `volumes: [{name: data, persistentVolumeClaim: {claimName: ` + pvc + `}}]`
	c.add(deploys+name, `{kind: Deployment, spec: {replicas: 3, template: {spec: {`+uses+`}}}}`)
	c.add("/apis/apps/v1/namespaces/web/replicasets/"+name+"-1", `{kind: ReplicaSet, metadata: {`+
		owner("Deployment", name, deploys+name)+`}}`)
	c.add(pods+name+"-1-a", `{kind: Pod, metadata: {`+owner("ReplicaSet", name+"-1", "-")+`},
		spec: {`+uses+`}}`)
}

func owner(kind, name, uid string) string {
	return fmt.Sprintf("ownerReferences: [{apiVersion: v1, kind: %s, name: %s, uid: %q, controller: true}]",
		kind, name, uid)
}

// lose deletes the cluster's objects but Longhorn's own configuration: the next cluster has its place.
func (c *cluster) lose() {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.objects, func(at string, _ map[string]any) bool {
		return !strings.HasPrefix(at, api+"backuptargets/") && !strings.HasPrefix(at, api+"nodes/")
	})
	clear(c.content)
}

func (c *cluster) has(at string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.objects[at] != nil
}

func (c *cluster) field(at string, fields ...string) any {
	c.mu.Lock()
	defer c.mu.Unlock()
	value, _, _ := unstructured.NestedFieldNoCopy(c.objects[at], fields...) //nolint:errcheck // nil then
	return value
}

func (c *cluster) serve(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, query := r.URL.Path, r.URL.Query()
	var answer any = &metav1.Status{Code: 404, Reason: metav1.StatusReasonNotFound}
	object, there := c.objects[at]
	var body map[string]any
	if r.Method != http.MethodGet {
		c.asked = append(c.asked, r.Method+" "+at)
		json.NewDecoder(r.Body).Decode(&body) //nolint:errcheck // a DELETE has options
	}
	switch {
	case query.Get("watch") != "":
	case at == "/api" || at == "/apis":
		answer = discovery(at)
	case r.Method == http.MethodPost:
		at += "/" + body["metadata"].(map[string]any)["name"].(string)
		c.place(at, body)
		c.manage(at, body)
		answer = body
	case isCollection(at):
		selector, err := labels.Parse(query.Get("labelSelector"))
		if err != nil {
			c.t.Error(err)
		}
		items := []any{}
		for _, one := range slices.Sorted(maps.Keys(c.objects)) {
			o := unstructured.Unstructured{Object: c.objects[one]}
			if everywhere(path.Dir(one)) == everywhere(at) && selector.Matches(labels.Set(o.GetLabels())) {
				items = append(items, o.Object)
			}
		}
		answer = map[string]any{"apiVersion": "v1", "kind": "List", "items": items}
	case !there:
	case r.Method == http.MethodPatch:
		c.objects[at] = merge(object, body)
		c.scaled(at)
		answer = c.objects[at]
	case r.Method == http.MethodDelete:
		delete(c.objects, at)
		answer = &metav1.Status{Code: 200, Status: metav1.StatusSuccess}
	default:
		answer = object
	}
	w.Header().Set("Content-Type", "application/json")
	if status, is := answer.(*metav1.Status); is {
		status.Kind, status.APIVersion = "Status", "v1"
		w.WriteHeader(int(status.Code))
	}
	json.NewEncoder(w).Encode(answer) //nolint:errcheck // a client that is gone needs no answer
}

// isCollection reports whether a path is that of a list, and not of an object.
func isCollection(at string) bool {
	depth := 3
	if strings.HasPrefix(at, "/apis/") {
		depth++
	}
	return strings.Count(everywhere(at), "/") == depth
}

// everywhere is the path without a namespace.
func everywhere(at string) string {
	root, rest, _ := strings.Cut(at, "/namespaces/")
	if _, below, is := strings.Cut(rest, "/"); is {
		return root + "/" + below
	}
	return at
}

func discovery(at string) any {
	var resources []any
	for _, kind := range []string{"Volume", "Snapshot", "Backup", "BackupTarget", "Node"} {
		resources = append(resources, map[string]any{"resource": strings.ToLower(kind) + "s",
			"scope": "Namespaced", "responseKind": map[string]any{"group": "longhorn.io",
				"version": "v1beta2", "kind": kind}})
	}
	items := []any{}
	if at == "/apis" {
		items = append(items, map[string]any{"metadata": map[string]any{"name": "longhorn.io"},
			"versions": []any{map[string]any{"version": "v1beta2", "resources": resources}}})
	}
	return map[string]any{"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2",
		"items": items}
}

func merge(object, patch map[string]any) map[string]any {
	merged := maps.Clone(object)
	if merged == nil {
		merged = map[string]any{}
	}
	for key, value := range patch {
		if deeper, is := value.(map[string]any); is {
			below, _ := merged[key].(map[string]any)
			merged[key] = merge(below, deeper)
		} else if merged[key] = value; value == nil {
			delete(merged, key)
		}
	}
	return merged
}

// scaled ends the Pods of a Deployment that has no replicas any more.
func (c *cluster) scaled(at string) {
	spec, _ := c.objects[at]["spec"].(map[string]any)
	if spec["replicas"] == 0.0 && path.Base(at) != c.stuck {
		delete(c.objects, pods+path.Base(at)+"-1-a")
	}
}

// manage does what Longhorn does about an object that was made.
func (c *cluster) manage(at string, o map[string]any) {
	spec, _ := o["spec"].(map[string]any)
	name := path.Base(at)
	switch o["kind"] {
	case "Snapshot":
		o["status"] = map[string]any{"readyToUse": true, "creationTime": "2026-11-27T03:00:00Z"}
	case "Backup":
		of := o["metadata"].(map[string]any)["labels"].(map[string]any)["backup-volume"].(string)
		c.upload(of, name, spec["backupMode"] == "full")
		o["status"] = map[string]any{"state": "Completed", "volumeName": of, "labels": spec["labels"],
			"url": "s3://castle@eu/lh/?backup=" + name + "&volume=" + of}
	case "Volume":
		_, backup, _ := strings.Cut(spec["fromBackup"].(string), "backup=")
		backup, _, _ = strings.Cut(backup, "&")
		c.content[name] = slices.Clone(c.kept[backup].blocks)
		c.damage(name)
		o["status"] = map[string]any{"state": "detached", "restoreInitiated": true}
	case "PersistentVolumeClaim":
		o["status"] = map[string]any{"phase": "Bound"}
	}
}

// sync places the Backups that are in the store, as Longhorn does once it has read its target.
func (c *cluster) sync() {
	for backup, of := range c.kept {
		c.add(api+"backups/"+backup, `{kind: Backup, status: {state: Completed, volumeName: `+of.volume+`,
			labels: {castle.ephemeral/data: files},
			url: "s3://castle@eu/lh/?backup=`+backup+`&volume=`+of.volume+`"}}`)
	}
}

// saved is what a backup holds.
type saved struct {
	volume string
	blocks []string
}

// upload writes a backup of a volume into the store, as longhorn/backupstore does: unless it is a full one,
// without the blocks that an earlier one has.
func (c *cluster) upload(volume, backup string, full bool) {
	earlier := map[string]bool{}
	for _, one := range c.kept {
		for _, text := range one.blocks {
			earlier[one.volume+text] = true
		}
	}
	c.kept[backup] = saved{volume, slices.Clone(c.content[volume])}
	folder := folderOf("/lh", volume)
	var blocks []block
	for i, text := range c.content[volume] {
		sum := checksum([]byte(text))
		blocks = append(blocks, block{int64(i) << 21, sum})
		key := folder + "/blocks/" + sum[:2] + "/" + sum[2:4] + "/" + sum + ".blk"
		if full {
			if err := c.in.Delete(context.Background(), key); err != nil {
				c.t.Error(err)
			}
		}
		if full || !earlier[volume+text] {
			c.write(key, text)
		}
	}
	c.write(folder+"/volume.cfg", fmt.Sprintf(`{"Name": %q, "Size": "1073741824"}`, volume))
	list, err := json.Marshal(blocks)
	if err != nil {
		c.t.Error(err)
	}
	c.write(folder+"/backups/backup_"+backup+".cfg", fmt.Sprintf(
		`{"Name": %q, "VolumeName": %q, "CreatedTime": "2026-11-27T03:00:00Z", "Size": "%d", "Blocks": %s}`,
		backup, volume, len(blocks)<<21, list))
}

func (c *cluster) write(key, text string) {
	err := c.in.Create(context.Background(), key, []byte(text))
	if err != nil && !errors.Is(err, fs.ErrExist) {
		c.t.Error(err)
	}
}
