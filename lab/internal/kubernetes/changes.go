package kubernetes

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
)

// changes counts the changes of each kind in etcd, named by where kube-apiserver keeps its objects: "pods",
// "services/specs", "longhorn.io/volumes".
type changes struct {
	mu     sync.Mutex
	counts map[string]int
	kinds  time.Time // when a CustomResourceDefinition changed last
	ended  bool      // nothing is known any more
}

// registry is the prefix of kube-apiserver's keys, and customKinds where it keeps CustomResourceDefinitions.
const (
	registry    = "/registry/"
	customKinds = "apiextensions.k8s.io/customresourcedefinitions"
)

// follow counts what changes from now on.
func (c *changes) follow(kv mvcc.WatchableKV) error {
	end := []byte(registry)
	end[len(end)-1]++
	stream := kv.NewWatchStream()
	if _, err := stream.Watch(clientv3.AutoWatchID, []byte(registry), end, 0); err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	go func() {
		for told := range stream.Chan() {
			if told.CompactRevision != 0 {
				break
			}
			for i := range told.Events {
				key, _ := bytes.CutPrefix(told.Events[i].Kv.Key, []byte(registry))
				c.add(kindOfKey(string(key)))
			}
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.ended = true
	}()
	return nil
}

func (c *changes) add(kind string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts == nil {
		c.counts = map[string]int{}
	}
	c.counts[kind]++
	if kind == customKinds {
		c.kinds = time.Now()
	}
}

// settles is how long after a CustomResourceDefinition has changed kube-apiserver may answer as before.
const settles = 3 * time.Second

// of returns how often objects of a kind have changed, and whether what the API says of them follows from
// etcd alone.
func (c *changes) of(kind string) (count int, follows bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !strings.Contains(kind, ".") || kind == customKinds {
		return c.counts[kind], !c.ended
	}
	return c.counts[kind] + c.counts[customKinds], !c.ended && time.Since(c.kinds) > settles
}

// kindOfKey is the kind of an object at a key below /registry: "pods/default/web" or
// "longhorn.io/volumes/longhorn-system/pvc-1".
func kindOfKey(key string) string {
	first, rest, _ := strings.Cut(key, "/")
	if second, _, _ := strings.Cut(rest, "/"); strings.Contains(first, ".") || first == "services" {
		return first + "/" + second
	}
	return first
}

// stored are the built-in kinds, as the API calls them, whose objects are below a key of their own.
var stored = map[string]string{
	"nodes": "minions", "services": "services/specs", "customresourcedefinitions": customKinds,
	"pods": "pods", "configmaps": "configmaps", "secrets": "secrets", "namespaces": "namespaces",
	"serviceaccounts": "serviceaccounts", "persistentvolumes": "persistentvolumes",
	"persistentvolumeclaims": "persistentvolumeclaims", "deployments": "deployments",
	"daemonsets": "daemonsets", "replicasets": "replicasets", "jobs": "jobs", "leases": "leases",
	"endpointslices": "endpointslices", "storageclasses": "storageclasses", "csinodes": "csinodes",
	"csidrivers": "csidrivers", "volumeattachments": "volumeattachments",
	"poddisruptionbudgets":            "poddisruptionbudgets",
	"validatingwebhookconfigurations": "validatingwebhookconfigurations",
}

// builtIn are the groups of stored. All others with a dot have custom resources, but for those of the API
// server itself.
var builtIn = map[string]bool{"": true, "apps": true, "batch": true, "policy": true, "storage.k8s.io": true,
	"discovery.k8s.io": true, "coordination.k8s.io": true, "admissionregistration.k8s.io": true,
	"apiextensions.k8s.io": true}

// kindOfPath is the kind that a path of the API is about: /api/v1/namespaces/default/pods/web or
// /apis/longhorn.io/v1beta2/volumes. It is empty for what etcd does not tell, and whole is false for a part
// of an object, such as its log.
func kindOfPath(path string) (kind string, whole bool) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	group := ""
	switch {
	case len(parts) > 2 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		group, parts = parts[1], parts[3:]
	default:
		return "", false
	}
	if len(parts) > 2 && parts[0] == "namespaces" && parts[2] != "status" && parts[2] != "finalize" {
		parts = parts[2:]
	}
	switch plural := parts[0]; {
	case builtIn[group]:
		return stored[plural], len(parts) < 3
	case strings.Contains(group, ".") && !strings.HasSuffix(group, ".k8s.io"):
		return group + "/" + plural, len(parts) < 3
	}
	return "", false
}
