package diagnose

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/ephemeral-castle/castle/internal/kube/client"
)

const (
	totalRoom   = 4 << 20   // bytes of all files of one gate
	fileRoom    = 256 << 10 // bytes of one file
	mostObjects = 2 * client.Most
)

// evidence is everything collected around one gate, as files.
type evidence struct {
	api    *client.API
	files  map[string][]byte
	room   int
	missed []string // what could not be read

	secrets []string // values of the cluster's Secrets
	redacts bool     // secrets is known, so that logs can be kept without them

	events   map[string][]corev1.Event // by namespace
	machines []corev1.Node
	muted    map[string]bool // nodes whose kubelet does not return logs
}

func newEvidence(a *client.API) *evidence {
	return &evidence{api: a, files: map[string][]byte{}, room: totalRoom,
		events: map[string][]corev1.Event{}, muted: map[string]bool{}}
}

// finish returns the files, and the function that hides the Secrets' data.
func (e *evidence) finish() (map[string][]byte, func(string) string) {
	if len(e.missed) > 0 {
		e.keep("not-read.txt", []byte(strings.Join(e.missed, "\n")+"\n"))
	}
	redact := redactor(e.secrets, strings.Join(slices.Sorted(maps.Keys(e.files)), "\n"))
	for name, data := range e.files {
		e.files[name] = []byte(redact(string(data)))
	}
	return e.files, redact
}

// miss notes a failed read.
func (e *evidence) miss(what string, err error) {
	e.missed = append(e.missed, what+": "+e.api.Explain(err).Error())
}

// keep adds a file, cut at its beginning: the end of a long text matters most.
func (e *evidence) keep(name string, data []byte) {
	if _, known := e.files[name]; known || len(data) == 0 {
		return
	}
	if over := len(data) - fileRoom; over > 0 {
		data = append(fmt.Appendf(nil, "… %d bytes left out …\n", over), data[over:]...)
	}
	if e.room -= len(data); e.room < 0 {
		return
	}
	e.files[name] = data
}

// object keeps an object in readable form: without managed fields and possible credentials.
func (e *evidence) object(object *client.Object) {
	text, err := yaml.Marshal(shown(object))
	if err != nil {
		e.miss(client.Title(object), err)
		return
	}
	e.keep(path.Join("objects", strings.ToLower(object.GetKind()), object.GetNamespace(),
		object.GetName()+".yaml"), text)
}

// objects keeps the first few objects.
func (e *evidence) objects(all []client.Object) {
	for i := range all[:min(len(all), mostObjects)] {
		e.object(&all[i])
	}
}

// list reads objects; it notes those that it cannot read.
func (e *evidence) list(ctx context.Context, s client.Selection, kind string) []client.Object {
	found, err := e.api.List(ctx, s, kind)
	if err != nil {
		e.miss(kind+"s"+client.In(s.Namespace), err)
	}
	return found
}

// nodes reads the nodes once and keeps them, with a table of their conditions and taints.
func (e *evidence) nodes(ctx context.Context) []corev1.Node {
	if e.machines != nil {
		return e.machines
	}
	items := e.list(ctx, client.Selection{Resource: client.Core("nodes")}, "Node")
	e.objects(items)
	var rows [][]any
	for _, item := range items {
		node, err := client.As[corev1.Node](item)
		if err != nil {
			continue
		}
		e.machines = append(e.machines, node)
		for _, c := range node.Status.Conditions {
			rows = append(rows, []any{node.Name, c.Type, c.Status, c.Reason, client.Brief(c.Message)})
		}
		for _, taint := range node.Spec.Taints {
			rows = append(rows, []any{node.Name, "taint", taint.Key, taint.Effect, ""})
		}
	}
	e.keep("nodes.txt", table(rows))
	return e.machines
}

// table writes rows of cells in columns.
func table(rows [][]any) []byte {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintf(t, strings.Repeat("%v\t", len(row)-1)+"%v\n", row...)
	}
	t.Flush() //nolint:errcheck // a Builder takes everything
	return []byte(b.String())
}

// eventsIn reads the events of a namespace (all where it is empty) once, the newest last, and keeps them.
func (e *evidence) eventsIn(ctx context.Context, namespace string) []corev1.Event {
	if known, ok := e.events[namespace]; ok {
		return known
	}
	all, err := client.ListAs[corev1.Event](ctx, e.api,
		client.Selection{Resource: client.Core("events"), Namespace: namespace}, "Event")
	if err != nil {
		e.miss("events"+client.In(namespace), err)
	}
	slices.SortStableFunc(all, func(a, b corev1.Event) int { return lastTime(a).Compare(lastTime(b)) })
	e.events[namespace] = all
	e.keep("events/"+cmp.Or(namespace, "all")+".txt", eventTable(all))
	return all
}

// lastTime is when an event happened last; its creator may have set any of these.
func lastTime(e corev1.Event) time.Time {
	times := []time.Time{
		e.CreationTimestamp.Time, e.FirstTimestamp.Time, e.LastTimestamp.Time, e.EventTime.Time,
	}
	if e.Series != nil {
		times = append(times, e.Series.LastObservedTime.Time)
	}
	return slices.MaxFunc(times, time.Time.Compare)
}

func eventTable(events []corev1.Event) []byte {
	var rows [][]any
	for _, e := range events {
		rows = append(rows, []any{lastTime(e).UTC().Format(time.RFC3339), strings.ToLower(e.Type),
			fmt.Sprintf("%dx", max(e.Count, 1)), e.Reason,
			strings.ToLower(e.InvolvedObject.Kind) + "/" + e.InvolvedObject.Name,
			strings.Join(strings.Fields(e.Message), " ")})
	}
	return table(rows)
}

// about returns the warnings about one object, the newest first.
func about(events []corev1.Event, kind, name string) []corev1.Event {
	var found []corev1.Event
	for _, e := range slices.Backward(events) {
		if isWarning(e) && e.InvolvedObject.Kind == kind && e.InvolvedObject.Name == name {
			found = append(found, e)
		}
	}
	return found
}

func isWarning(e corev1.Event) bool { return e.Type == corev1.EventTypeWarning }
