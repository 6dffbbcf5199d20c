package client

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
)

// announcer is an in-memory API that serves only watches, so that a test controls its time. A test waits
// until the watches are idle before it looks.
type announcer struct {
	mu    sync.Mutex
	down  error                         // what a watch is refused with
	drops bool                          // whether a watch ends as soon as it has begun
	hangs bool                          // whether a watch neither begins nor fails
	begun []string                      // of what each watch was asked for
	open  map[string]*watch.FakeWatcher // the last one, by resource
}

// announced is one resource of it.
type announced struct {
	metadata.Getter
	a    *announcer
	name string
}

func (a *announcer) Resource(r schema.GroupVersionResource) metadata.Getter {
	return announced{a: a, name: r.Resource}
}

func (r announced) Namespace(string) metadata.ResourceInterface { return r }

func (r announced) Watch(ctx context.Context, _ metav1.ListOptions) (watch.Interface, error) {
	a := r.a
	a.mu.Lock()
	a.begun = append(a.begun, r.name)
	hangs := a.hangs
	a.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.down != nil {
		return nil, a.down
	}
	w := watch.NewFake()
	a.open[r.name] = w
	context.AfterFunc(ctx, w.Stop)
	if a.drops {
		w.Stop()
	}
	return w, nil
}

// set changes how it behaves from now on.
func (a *announcer) set(change func(*announcer)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change(a)
}

// watching starts the watches of what an attempt has read, in a bubble of synctest, and returns where later
// attempts report.
func watching(t *testing.T, read ...Selection) (*announcer, chan<- map[Selection]bool, <-chan struct{}) {
	a := &announcer{open: map[string]*watch.FakeWatcher{}}
	c := &Cluster{Attempt: 10 * time.Second, open: func() (*API, error) { return &API{watching: a}, nil }}
	attempts := make(chan map[Selection]bool, 1)
	attempts <- reads(read...)
	return a, attempts, c.changes(attempts)(t.Context())
}

// reads are the selections of one attempt.
func reads(all ...Selection) map[Selection]bool {
	read := map[Selection]bool{}
	for _, s := range all {
		read[s] = true
	}
	return read
}

// told counts the pending changes.
func told(changed <-chan struct{}) int {
	synctest.Wait()
	for n := 0; ; n++ {
		select {
		case <-changed:
		default:
			return n
		}
	}
}

func kindOf(resource string) Selection {
	return Selection{Resource: schema.GroupVersionResource{Resource: resource}}
}

func TestAChangeBeforeTheWatchBeganIsSignalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, changed := watching(t, kindOf("nodes"))
		if told(changed) != 1 {
			t.Error("a watch that begins must tell: something may have changed before")
		}
		time.Sleep(time.Hour)
		if n := told(changed); n != 0 {
			t.Errorf("told of %d changes where nothing happened", n)
		}
	})
}

func TestEveryEventIsAChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _, changed := watching(t, kindOf("nodes"), kindOf("pods"))
		told(changed)
		for _, resource := range []string{"nodes", "pods", "nodes"} {
			a.open[resource].Delete(&metav1.PartialObjectMetadata{})
			if told(changed) != 1 {
				t.Errorf("an event of %s is not told", resource)
			}
		}
	})
}

func TestAWatchThatEndsBeginsAgain(t *testing.T) {
	for name, end := range map[string]func(*watch.FakeWatcher){
		"because its connection is gone": func(w *watch.FakeWatcher) { w.Stop() },
		"because the API says so":        func(w *watch.FakeWatcher) { w.Error(&metav1.Status{Code: 410}) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, _, changed := watching(t, kindOf("nodes"))
				time.Sleep(time.Minute)
				told(changed)
				end(a.open["nodes"])
				time.Sleep(time.Second)
				synctest.Wait()
				if n := len(a.begun); n != 2 {
					t.Fatalf("%d watches were begun, want a second one", n)
				}
				if told(changed) == 0 {
					t.Error("what changed in between is lost")
				}
				a.open["nodes"].Modify(&metav1.PartialObjectMetadata{})
				if told(changed) == 0 {
					t.Error("the second watch tells nothing")
				}
			})
		})
	}
}

func TestAnAPIThatIsDownIsRetriedAtIntervals(t *testing.T) {
	refused := errors.New("connection refused")
	for name, fail := range map[string]func(*announcer){
		"refusing":                   func(a *announcer) { a.down = refused },
		"taking and then hanging up": func(a *announcer) { a.drops = true },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, _, changed := watching(t, kindOf("nodes"))
				time.Sleep(time.Minute)
				synctest.Wait()
				a.set(fail)
				a.open["nodes"].Stop()
				time.Sleep(time.Minute)
				synctest.Wait()
				if n := len(a.begun); n < 50 || n > 65 {
					t.Errorf("tried %d times in a minute, want each second or so", n)
				}
				told(changed)
				a.set(func(a *announcer) { a.down, a.drops = nil, false })
				time.Sleep(3 * time.Second)
				if told(changed) == 0 {
					t.Error("the API is back, and nobody was told")
				}
			})
		})
	}
}

func TestAWatchThatHangsIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _, changed := watching(t, kindOf("nodes"))
		time.Sleep(time.Minute)
		told(changed)
		a.set(func(a *announcer) { a.hangs = true })
		a.open["nodes"].Stop()
		time.Sleep(5 * time.Second)
		synctest.Wait()
		a.set(func(a *announcer) { a.hangs = false })
		time.Sleep(10 * time.Second)
		if told(changed) == 0 {
			t.Error("the watch still hangs")
		}
	})
}

// toldIn counts the changes in the time from now on.
func toldIn(d time.Duration, changed <-chan struct{}) int {
	count := 0
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(time.Millisecond) {
		count += told(changed)
	}
	return count
}

func TestAChangedDefinitionHurriesTheSearchForAKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, attempts, changed := watching(t, Selection{Resource: Definitions})
		if n := toldIn(time.Minute, changed); n != 9 {
			t.Errorf("%d signals, want one for the watch and eight more", n)
		}
		a.open[Definitions.Resource].Modify(&metav1.PartialObjectMetadata{})
		if n := toldIn(time.Second, changed); n != 5 {
			t.Errorf("%d signals in the second after a change, want one for it and four more", n)
		}
		attempts <- reads(kindOf("valves"))
		if n := toldIn(time.Minute, changed); n != 1 {
			t.Errorf("%d signals once the kind is served, want one for its watch", n)
		}
	})
}

func TestABusySelectionDoesNotHurryTheSearchForMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _, changed := watching(t, kindOf("nodes"), Selection{Resource: Definitions})
		toldIn(time.Minute, changed)
		for range 1000 {
			a.open["nodes"].Modify(&metav1.PartialObjectMetadata{})
			if n := toldIn(10*time.Millisecond, changed); n != 1 {
				t.Fatalf("%d signals for one change", n)
			}
		}
	})
}

func TestTheLastAttemptDecidesWhatIsWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, attempts, changed := watching(t, kindOf("nodes"), Selection{Resource: Definitions})
		time.Sleep(time.Minute)
		synctest.Wait()
		if want := []string{"customresourcedefinitions",
			"nodes"}; !slices.Equal(slices.Sorted(slices.Values(a.begun)), want) {
			t.Errorf("watches %v, want %v", a.begun, want)
		}
		told(changed)
		attempts <- reads(kindOf("nodes"), kindOf("kustomizations"))
		if told(changed) != 1 || !slices.Contains(a.begun, "kustomizations") {
			t.Errorf("watches %v once the kind is served", a.begun)
		}
		if !a.open[Definitions.Resource].IsStopped() {
			t.Error("definitions are still watched, although no kind is missing")
		}
		if n := len(a.begun); n != 3 {
			t.Errorf("%d watches were begun, want 3: one that goes on is not begun again", n)
		}
	})
}
