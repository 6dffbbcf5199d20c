package kube

import (
	"context"
	"errors"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
)

// selection is what a gate watches: a kind's objects in a namespace (all where
// it is empty), narrowed by label or by name.
type selection struct {
	in        schema.GroupVersionResource
	namespace string
	labels    string
	name      string
}

// selected says what is to be watched, as far as is known by now. An error
// beside it says that there will be more, so it is asked again: soon, and
// whenever something changes.
type selected func(context.Context, *api) ([]selection, error)

// always is for a gate that knows from the start what to watch.
func always(all ...selection) selected {
	return func(context.Context, *api) ([]selection, error) { return all, nil }
}

// one is for a gate that has to find out what its one selection is.
func one(what func(context.Context, *api) (selection, error)) selected {
	return func(ctx context.Context, a *api) ([]selection, error) {
		s, err := what(ctx, a)
		if err != nil {
			return nil, err
		}
		return []selection{s}, nil
	}
}

// changes makes a gate's Changed from what there is to watch. A watch that ends
// or cannot begin, because the API restarts or serves the kind only later, is
// begun again after a pause. Nothing is lost in between: whenever a watch
// begins, that counts as a change.
func (c *cluster) changes(what selected) func(context.Context) <-chan struct{} {
	return func(ctx context.Context) <-chan struct{} {
		w := &watches{
			what: what, bound: c.attempt, running: map[selection]context.CancelFunc{},
			changed: make(chan struct{}, 1), stirred: make(chan struct{}, 1),
		}
		a, err := c.open()
		if err != nil {
			close(w.changed) // a check says so too
			return w.changed
		}
		w.api = a
		go w.manage(ctx)
		return w.changed
	}
}

// watches are all watches of one gate.
type watches struct {
	api     *api
	what    selected
	bound   time.Duration // on each request, but not on a watch that has begun
	running map[selection]context.CancelFunc
	all     sync.WaitGroup

	changed chan struct{} // tells the gate; holds one, because a check sees everything at once
	stirred chan struct{} // tells manage
}

const (
	// longestPause is between attempts to begin a watch: a restart of the API is soon over.
	longestPause = time.Second
	// leastPause and longestSearch are between questions what to watch, however
	// much changes, and however little.
	leastPause    = 100 * time.Millisecond
	longestSearch = 4 * time.Second
)

func pauses(longest time.Duration) wait.Backoff {
	return wait.Backoff{Duration: 250 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 10, Cap: longest}
}

// manage begins and ends watches as it becomes known what there is to watch.
func (w *watches) manage(ctx context.Context) {
	defer close(w.changed)
	defer w.all.Wait()
	missing := false
	for pause := pauses(longestSearch); ctx.Err() == nil; {
		err := w.arrange(ctx)
		if missing && err == nil {
			w.tell() // nothing else tells that a kind is served now
		}
		missing = err != nil
		var again <-chan time.Time
		if missing {
			again = time.After(pause.Step())
		}
		linger(ctx, leastPause)
		select {
		case <-ctx.Done():
		case <-again:
		case <-w.stirred:
			pause = pauses(longestSearch)
		}
	}
}

// arrange asks what to watch, begins what is new, and ends what is not watched
// any more.
func (w *watches) arrange(ctx context.Context) error {
	asking, stop := context.WithTimeout(ctx, w.bound)
	defer stop()
	all, err := w.what(asking, w.api)
	if absent := (notServed{}); errors.As(err, &absent) {
		all = append(all, selection{in: definitions})
	}
	wanted := map[selection]bool{}
	for _, s := range all {
		wanted[s] = true
		if w.running[s] != nil {
			continue
		}
		following, end := context.WithCancel(ctx)
		w.running[s] = end
		w.all.Go(func() { w.follow(following, s) })
	}
	for s, end := range w.running {
		if !wanted[s] && err == nil {
			end()
			delete(w.running, s)
		}
	}
	return err
}

// definitions are where a kind comes from that is not served yet.
var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// follow tells of everything that happens to a selection.
func (w *watches) follow(ctx context.Context, s selection) {
	for pause := pauses(longestPause); ctx.Err() == nil; linger(ctx, pause.Step()) {
		events, end, err := w.begin(ctx, s)
		if err != nil {
			continue
		}
		began := time.Now()
		w.tell() // of what has changed before the watch began
		for event := range events.ResultChan() {
			if event.Type == watch.Error {
				break
			}
			w.tell()
		}
		events.Stop()
		end()
		if time.Since(began) > longestPause {
			pause = pauses(longestPause) // it was no connection that is taken and dropped at once
		}
	}
}

// begin starts a watch within the bound. It asks for the objects' metadata
// only: that one has changed is all that matters.
func (w *watches) begin(ctx context.Context, s selection) (watch.Interface, context.CancelFunc, error) {
	ctx, end := context.WithCancel(ctx)
	late := time.AfterFunc(w.bound, end)
	options := metav1.ListOptions{LabelSelector: s.labels}
	if s.name != "" {
		options.FieldSelector = "metadata.name=" + s.name
	}
	events, err := w.api.watching.Resource(s.in).Namespace(s.namespace).Watch(ctx, options)
	late.Stop()
	if err != nil {
		end()
		return nil, nil, err
	}
	return events, end, nil
}

// tell tells of a change. Where one is waiting to be heard already, that does
// for both.
func (w *watches) tell() {
	for _, to := range []chan struct{}{w.changed, w.stirred} {
		select {
		case to <- struct{}{}:
		default:
		}
	}
}

func linger(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
