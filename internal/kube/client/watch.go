package client

import (
	"context"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
)

// Selection is the set of objects that a check reads and watches: a kind in a namespace (all where it is
// empty), narrowed by labels or by name.
type Selection struct {
	Resource                schema.GroupVersionResource
	Namespace, Labels, Name string
}

// Selections returns the known selections to watch. An error beside them means that more will follow, so it
// is called again: soon, and after each change.
type Selections func(context.Context, *API) ([]Selection, error)

// Definitions are the CRDs, where a kind comes from that is not served yet.
var Definitions = schema.GroupVersionResource{
	Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
}

const (
	// longestPause is between attempts to begin a watch: a restart of the API is soon over.
	longestPause = time.Second
	// leastPause and longestSearch are between calls of Selections, however much changes, and however
	// little.
	leastPause    = 100 * time.Millisecond
	longestSearch = 4 * time.Second
)

func pauses(longest time.Duration) wait.Backoff {
	return wait.Backoff{Duration: 250 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 10, Cap: longest}
}

// Changes makes a gate's Changed from its selections. A watch that ends or cannot begin, because the API
// restarts or serves the kind only later, begins again after a pause. Nothing is lost in between: each
// beginning of a watch counts as a change.
func (c *Cluster) Changes(what Selections) func(context.Context) <-chan struct{} {
	return func(ctx context.Context) <-chan struct{} {
		w := &watches{
			what: what, bound: c.Attempt, running: map[Selection]context.CancelFunc{},
			changed: make(chan struct{}, 1), wake: make(chan struct{}, 1),
		}
		a, err := c.open()
		if err != nil {
			close(w.changed) // a check returns the error
			return w.changed
		}
		w.api = a
		go w.manage(ctx)
		return w.changed
	}
}

// watches are all watches of one gate.
type watches struct {
	api     *API
	what    Selections
	bound   time.Duration // on each request, but not on a watch that has begun
	running map[Selection]context.CancelFunc
	all     sync.WaitGroup

	changed chan struct{} // signals the gate; holds one, because a check sees everything at once
	wake    chan struct{} // signals manage
}

// manage begins and ends watches as the selections become known.
func (w *watches) manage(ctx context.Context) {
	defer close(w.changed)
	defer w.all.Wait()
	missing := false
	for pause := pauses(longestSearch); ctx.Err() == nil; {
		err := w.arrange(ctx)
		if missing && err == nil {
			w.signal() // nothing else signals that a kind is served now
		}
		missing = err != nil
		var again <-chan time.Time
		if missing {
			again = time.After(pause.Step())
		}
		sleep(ctx, leastPause)
		select {
		case <-ctx.Done():
		case <-again:
		case <-w.wake:
			pause = pauses(longestSearch)
		}
	}
}

// arrange begins the watches that are new and ends those that are not needed any more.
func (w *watches) arrange(ctx context.Context) error {
	asking, stop := context.WithTimeout(ctx, w.bound)
	defer stop()
	all, err := w.what(asking, w.api)
	if IsNotServed(err) {
		all = append(all, Selection{Resource: Definitions})
	}
	wanted := map[Selection]bool{}
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

// follow signals every event of a selection.
func (w *watches) follow(ctx context.Context, s Selection) {
	for pause := pauses(longestPause); ctx.Err() == nil; sleep(ctx, pause.Step()) {
		events, end, err := w.begin(ctx, s)
		if err != nil {
			continue
		}
		began := time.Now()
		w.signal() // something may have changed before the watch began
		for event := range events.ResultChan() {
			if event.Type == watch.Error {
				break
			}
			w.signal()
		}
		events.Stop()
		end()
		if time.Since(began) > longestPause {
			pause = pauses(longestPause) // the API did not drop the connection at once
		}
	}
}

// begin starts a watch within the bound. It requests the objects' metadata only: all that matters is that
// one has changed.
func (w *watches) begin(ctx context.Context, s Selection) (watch.Interface, context.CancelFunc, error) {
	ctx, end := context.WithCancel(ctx)
	late := time.AfterFunc(w.bound, end)
	options := metav1.ListOptions{LabelSelector: s.Labels}
	if s.Name != "" {
		options.FieldSelector = "metadata.name=" + s.Name
	}
	events, err := w.api.watching.Resource(s.Resource).Namespace(s.Namespace).Watch(ctx, options)
	late.Stop()
	if err != nil {
		end()
		return nil, nil, err
	}
	return events, end, nil
}

// signal reports a change. One that waits to be received stands for both.
func (w *watches) signal() {
	for _, to := range []chan struct{}{w.changed, w.wake} {
		select {
		case to <- struct{}{}:
		default:
		}
	}
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
