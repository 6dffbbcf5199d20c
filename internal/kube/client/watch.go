package client

import (
	"context"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// Selection is the set of objects that a check reads and watches: a kind in a namespace (all where it is
// empty), narrowed by labels or by name.
type Selection struct {
	Resource                schema.GroupVersionResource
	Namespace, Labels, Name string
}

// Definitions are the CRDs, where a kind comes from that is not served yet.
var Definitions = schema.GroupVersionResource{
	Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
}

// longestPause is between attempts to begin a watch: a restart of the API is soon over.
const longestPause = time.Second

func pauses() wait.Backoff {
	return wait.Backoff{Duration: longestPause / 4, Factor: 2, Jitter: 0.2, Steps: 10, Cap: longestPause}
}

// Gate makes a gate of a check. Its Changed watches everything that the last attempt has read.
func (c *Cluster) Gate(name string, check func(context.Context, *API) error) gate.Gate {
	attempts := make(chan map[Selection]bool, 1)
	return gate.Gate{Name: name, Changed: c.changes(attempts),
		Check: c.Check(func(ctx context.Context, a *API) error {
			read, recording := map[Selection]bool{}, *a
			recording.Read = func(s Selection, _ ...Object) { read[s] = true }
			err := check(ctx, &recording)
			select {
			case <-attempts: // nothing watches yet: only the last attempt counts
			default:
			}
			select {
			case attempts <- read:
			default:
			}
			return err
		})}
}

// changes makes a gate's Changed of what its attempts read. A watch that ends or cannot begin, because the
// API restarts or serves the kind only later, begins again after a pause. Nothing is lost in between: each
// beginning of a watch counts as a change.
func (c *Cluster) changes(attempts <-chan map[Selection]bool) func(context.Context) <-chan struct{} {
	return func(ctx context.Context) <-chan struct{} {
		w := &watches{bound: c.Attempt, running: map[Selection]context.CancelFunc{},
			changed: make(chan struct{}, 1), defined: make(chan struct{}, 1)}
		a, err := c.open()
		if err != nil {
			close(w.changed) // a check returns the error
			return w.changed
		}
		w.api = a
		go w.manage(ctx, attempts)
		return w.changed
	}
}

// watches are all watches of one gate.
type watches struct {
	api     *API
	bound   time.Duration // on each request, but not on a watch that has begun
	running map[Selection]context.CancelFunc
	all     sync.WaitGroup
	changed chan struct{} // signals the gate; holds one, because a check sees everything at once
	defined chan struct{} // signals manage that a definition may have changed
}

// manage begins the watches that are new after an attempt, and ends those that are not needed any more.
// While an attempt lacks a kind, it signals repeatedly after each change of a definition.
func (w *watches) manage(ctx context.Context, attempts <-chan map[Selection]bool) {
	defer close(w.changed)
	defer w.all.Wait()
	var search wait.Backoff
	var again <-chan time.Time
	for {
		var read map[Selection]bool
		select {
		case <-ctx.Done():
			return
		case <-w.defined:
			// For about five seconds: no event announces the moment from which on the API serves the kind.
			search = wait.Backoff{Duration: 100 * time.Millisecond, Factor: 1.5, Steps: 8}
			again = time.After(search.Step())
			continue
		case <-again:
			if again = nil; w.running[Selection{Resource: Definitions}] == nil {
				continue // every kind is served
			}
			signal(w.changed)
			if search.Steps > 0 {
				again = time.After(search.Step())
			}
			continue
		case read = <-attempts:
		}
		for s := range read {
			if w.running[s] == nil {
				following, end := context.WithCancel(ctx)
				w.running[s] = end
				w.all.Go(func() { w.follow(following, s) })
			}
		}
		for s, end := range w.running {
			if !read[s] {
				end()
				delete(w.running, s)
			}
		}
	}
}

// follow signals every event of a selection.
func (w *watches) follow(ctx context.Context, s Selection) {
	for pause := pauses(); ctx.Err() == nil; gate.Sleep(ctx, pause.Step()) {
		events, end, err := w.begin(ctx, s)
		if err != nil {
			continue
		}
		began := time.Now()
		w.signal(s) // something may have changed before the watch began
		for event := range events.ResultChan() {
			if event.Type == watch.Error {
				break
			}
			w.signal(s)
		}
		events.Stop()
		end()
		if time.Since(began) > longestPause {
			pause = pauses() // the API did not drop the connection at once
		}
	}
}

// begin starts a watch within the bound, of the objects' metadata: it only matters that one has changed.
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

// signal reports a change of a selection.
func (w *watches) signal(s Selection) {
	signal(w.changed)
	if s.Resource == Definitions {
		signal(w.defined)
	}
}

// signal sends a signal. One that waits to be received stands for both.
func signal(to chan<- struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}
