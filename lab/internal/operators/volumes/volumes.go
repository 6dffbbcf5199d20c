// Package volumes simulates Longhorn's volumes: the nodes and disks that hold them, the Pods that run them,
// their replicas and engines, and the budgets that keep a node with the last replica from being drained.
//
// A volume follows the Pods that use its claim. A replica fails while its volume is attached and the
// instance manager of its node is not there: the Pod was evicted, or the machine is off. It is rebuilt once
// the instance manager is back, as long as another one is intact. The rules are those of longhorn-manager
// v1.12: controller/{volume,instance_manager,node}_controller.go. A volume has no data.
//
// Like the other operators, it looks and takes the steps that are due. Everything but the time since when a
// step is due stands in the objects, so that another process goes on with them.
package volumes

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ephemeral-castle/castle/lab/internal/operators/cluster"
)

// What the steps take outside.
const (
	disksAfter   = 4 * time.Second // the node itself
	managerReady = 3 * time.Second
	attaches     = 3 * time.Second
	detaches     = 2 * time.Second
	rebuilds     = 30 * time.Second
	salvages     = 10 * time.Second
	// replenishes is the setting replica-replenishment-wait-interval: until then the data of a failed replica
	// may come back.
	replenishes = 10 * time.Minute
)

// lab/internal/kubernetes gives each node a label while its kubelet runs, and an annotation that changes when
// it stops. An instance manager has the annotation of the node's present run.
const (
	running = "lab.castle/kubelet"
	stopped = "lab.castle/stopped"
)

// Volumes are the volumes of a cluster.
type Volumes struct {
	w          *cluster.View
	degraded   *cluster.Fault
	contents   contents
	tasks      *tasks
	policy     string // the setting node-drain-policy
	resource   string // the chart's backup target that was applied last
	incomplete bool   // backup-incomplete is yet to come
	tries      map[string]int
	known      map[string]*replica // those that this process has seen
}

// New returns the volumes of a cluster, with their contents below a directory.
func New(w *cluster.View, dir string) *Volumes {
	return &Volumes{w: w, degraded: w.Fault("volume-degraded", "/volumes"), contents: contentsIn(dir),
		tasks: newTasks(), incomplete: w.Faults.BackupIncomplete, tries: map[string]int{},
		known: map[string]*replica{}}
}

// Close ends what runs beside the looks.
func (v *Volumes) Close() { v.tasks.close() }

// Look takes the steps that are due. managers are the Pods of longhorn-manager that are ready, all of them in
// the namespace.
func (v *Volumes) Look(ctx context.Context, namespace string, managers []corev1.Pod) error {
	if err := v.settings(ctx, namespace); err != nil {
		return err
	}
	s := &state{w: v.w, degraded: v.degraded, policy: v.policy, namespace: namespace, contents: v.contents,
		tasks: v.tasks, tries: v.tries, incomplete: v.incomplete, wanted: map[string][]ticket{}}
	defer func() { v.incomplete = s.incomplete }()
	if err := s.read(ctx); err != nil {
		return err
	}
	errs := []error{s.join(ctx, managers), s.configure(ctx, &v.resource)}
	for _, h := range s.hosts {
		errs = append(errs, s.report(ctx, h), s.manage(ctx, h))
	}
	errs = append(errs, s.last(ctx), s.provision(ctx), s.saves(ctx))
	for _, one := range s.volumes {
		errs = append(errs, cluster.About("volume "+one.Name, s.volume(ctx, one)))
	}
	for _, h := range s.hosts {
		errs = append(errs, s.protect(ctx, h))
	}
	return errors.Join(append(append(errs, s.errs...), v.clean(s))...)
}

// saves takes the steps of snapshots and backups.
func (s *state) saves(ctx context.Context) error {
	errs := []error{s.syncTarget(ctx)}
	for _, of := range s.backupVolumes {
		errs = append(errs, cluster.About("backup volume "+of.Name, s.backupVolume(ctx, of)))
	}
	for _, sn := range s.snapshots {
		errs = append(errs, cluster.About("snapshot "+sn.Name, s.snapshot(ctx, sn)))
	}
	for _, b := range s.backups {
		errs = append(errs, cluster.About("backup "+b.Name, s.backup(ctx, b)))
	}
	return errors.Join(errs...)
}

// clean deletes the contents of replicas that are gone. Those that this process has never seen stay, as
// orphans.
func (v *Volumes) clean(s *state) error {
	var errs []error
	now := map[string]*replica{}
	for _, r := range s.replicas {
		now[r.Name] = r
	}
	for name, r := range v.known {
		if now[name] == nil {
			errs = append(errs, os.RemoveAll(v.contents.of(r)))
		}
	}
	v.known = now
	return errors.Join(errs...)
}

// Release lets go what is being deleted after the managers have gone, as the chart's uninstall job does.
func (v *Volumes) Release(ctx context.Context) error {
	var errs []error
	for _, plural := range finalized() {
		all, err := v.w.List(ctx, Resource(plural), "")
		errs = append(errs, err)
		for _, o := range all {
			if o.GetDeletionTimestamp() == nil || len(o.GetFinalizers()) == 0 {
				continue
			}
			_, err := patch(
				ctx,
				v.w.Untyped.Resource(Resource(plural)).Namespace(o.GetNamespace()),
				o.GetName(),
				"",
				map[string]any{"metadata": map[string]any{"finalizers": nil}},
			)
			errs = append(errs, cluster.Unless(err, apierrors.IsNotFound))
		}
	}
	return errors.Join(errs...)
}

// host is a node that Longhorn knows.
type host struct {
	node    *unstructured.Unstructured // Longhorn's
	kube    *corev1.Node               // nil once it is deleted
	manager *corev1.Pod                // the instance manager; nil if there is none
	budget  *policyv1.PodDisruptionBudget
}

func (h *host) name() string { return h.node.GetName() }

// up reports whether the machine runs and its kubelet says so.
func (h *host) up() bool {
	if h.kube == nil || h.kube.Labels[running] == "" {
		return false
	}
	return slices.ContainsFunc(h.kube.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

func (h *host) cordoned() bool { return h.kube != nil && h.kube.Spec.Unschedulable }

// boot identifies the present run of the machine.
func (h *host) boot() string {
	if h.kube == nil {
		return ""
	}
	return h.kube.Annotations[stopped]
}

// runs reports whether the instance manager runs: the Pod is ready, and of the machine's present run.
func (h *host) runs() bool {
	return h != nil && h.up() && h.manager != nil && h.manager.DeletionTimestamp == nil &&
		h.manager.Annotations[stopped] == h.boot() && ready(h.manager)
}

// takes reports whether Longhorn places replicas there.
func (h *host) takes() bool {
	disks := cluster.Nested(h.node.Object, "status", "diskStatus")
	return h.allows() && h.up() && !h.cordoned() && len(disks) > 0
}

// allows is the node's spec.allowScheduling.
func (h *host) allows() bool {
	allowed, _ := cluster.Nested(h.node.Object, "spec")["allowScheduling"].(bool)
	return allowed
}

// evicts reports whether somebody wants all replicas off the node.
func (h *host) evicts() bool {
	requested, _ := cluster.Nested(h.node.Object, "spec")["evictionRequested"].(bool)
	return requested
}

func ready(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// state is what a look has found, and changes with its steps.
type state struct {
	w         *cluster.View
	degraded  *cluster.Fault
	policy    string
	namespace string
	hosts     []*host                     // by name
	managers  []unstructured.Unstructured // the objects of the instance managers
	volumes   []*volume
	replicas  []*replica
	engines   []*engine
	tickets   []*attachment
	kube      map[string]*corev1.Node
	pods      []corev1.Pod // those that use claims; nil if there is no volume

	contents      contents
	tasks         *tasks
	tries         map[string]int // of backups
	incomplete    bool
	target        *backupTarget // "default"; nil until it is made
	backupVolumes []*backupVolume
	backups       []*backup
	snapshots     []*snapshot
	wanted        map[string][]ticket // by volume: what attaches it beside Pods
	persistent    []corev1.PersistentVolume
	errs          []error // of events
}

func (s *state) read(ctx context.Context) error {
	nodes, err := s.w.Typed.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	s.kube = map[string]*corev1.Node{}
	for i := range nodes.Items {
		s.kube[nodes.Items[i].Name] = &nodes.Items[i]
	}
	own, err := s.w.List(ctx, Resource("nodes"), s.namespace)
	if err != nil {
		return err
	}
	managers, err := s.w.Typed.CoreV1().Pods(s.namespace).List(ctx,
		metav1.ListOptions{LabelSelector: component + "=instance-manager"})
	if err != nil {
		return err
	}
	budgets, err := s.w.Typed.PolicyV1().PodDisruptionBudgets(s.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	if s.managers, err = s.w.List(ctx, Resource("instancemanagers"), s.namespace); err != nil {
		return err
	}
	for _, node := range own {
		h := &host{node: &node, kube: s.kube[node.GetName()]}
		for i := range managers.Items {
			if managers.Items[i].Name == managerOf(h.name()) {
				h.manager = &managers.Items[i]
			}
		}
		for i := range budgets.Items {
			if budgets.Items[i].Name == managerOf(h.name()) {
				h.budget = &budgets.Items[i]
			}
		}
		s.hosts = append(s.hosts, h)
	}
	slices.SortFunc(s.hosts, func(a, b *host) int { return strings.Compare(a.name(), b.name()) })
	if s.volumes, err = list[volume](ctx, s.w, "volumes", s.namespace); err != nil {
		return err
	}
	if err := s.readSaves(ctx); err != nil {
		return err
	}
	slices.SortFunc(s.volumes, func(a, b *volume) int { return strings.Compare(a.Name, b.Name) })
	if s.replicas, err = list[replica](ctx, s.w, "replicas", s.namespace); err != nil || len(s.volumes) == 0 {
		return err
	}
	if s.engines, err = list[engine](ctx, s.w, "engines", s.namespace); err != nil {
		return err
	}
	if s.tickets, err = list[attachment](ctx, s.w, "volumeattachments", s.namespace); err != nil {
		return err
	}
	pods, err := s.w.Typed.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, p := range pods.Items {
		uses := slices.ContainsFunc(p.Spec.Volumes,
			func(one corev1.Volume) bool { return one.PersistentVolumeClaim != nil })
		if uses && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
			s.pods = append(s.pods, p)
		}
	}
	return nil
}

// readSaves reads what is about backups. Without a volume and a place for backups there is nothing.
func (s *state) readSaves(ctx context.Context) error {
	targets, err := list[backupTarget](ctx, s.w, "backuptargets", s.namespace)
	if err != nil {
		return err
	}
	for _, t := range targets {
		if t.Name == defaultTarget {
			s.target = t
		}
	}
	if len(s.volumes) == 0 && (s.target == nil || s.target.Spec.BackupTargetURL == "" &&
		len(s.target.Status.Conditions) > 0) {
		return nil
	}
	if s.backupVolumes, err = list[backupVolume](ctx, s.w, "backupvolumes", s.namespace); err != nil {
		return err
	}
	if s.backups, err = list[backup](ctx, s.w, "backups", s.namespace); err != nil {
		return err
	}
	s.snapshots, err = list[snapshot](ctx, s.w, "snapshots", s.namespace)
	return err
}

func (s *state) host(name string) *host {
	for _, h := range s.hosts {
		if h.name() == name {
			return h
		}
	}
	return nil
}

// of returns the replicas of a volume, by name.
func (s *state) of(volume string) (own []*replica) {
	for _, r := range s.replicas {
		if r.Spec.VolumeName == volume {
			own = append(own, r)
		}
	}
	slices.SortFunc(own, func(a, b *replica) int { return strings.Compare(a.Name, b.Name) })
	return own
}

// free returns the node that would get another replica of a volume: that with the fewest replicas; "" if no
// node without one takes any.
func (s *state) free(volume string) string {
	name, least := "", 0
	for _, h := range s.hosts {
		all, own := 0, false
		for _, r := range s.replicas {
			if r.Spec.NodeID == h.name() {
				all++
				own = own || r.Spec.VolumeName == volume
			}
		}
		if h.takes() && !h.evicts() && !own && (name == "" || all < least) {
			name, least = h.name(), all
		}
	}
	return name
}
