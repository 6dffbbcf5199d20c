package graph_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/ephemeral-castle/castle/internal/graph"
)

// castle is the library's shape: two roots, a platform, three branches.
func castle() ([]string, func(string) []string) {
	edges := map[string][]string{
		"platform": {"infisical", "keys"},
		"eso":      {"platform"}, "store": {"eso"},
		"metallb": {"platform"}, "pool": {"metallb"},
		"longhorn": {"platform"},
		"flux":     {"store"},
	}
	nodes := []string{"infisical", "keys", "platform", "eso", "store", "metallb", "pool", "longhorn", "flux"}
	return nodes, func(n string) []string { return edges[n] }
}

func TestSortPutsEveryNodeAfterWhatItNeeds(t *testing.T) {
	nodes, needs := castle()
	slices.Reverse(nodes)
	order, err := graph.Sort(nodes, needs)
	if err != nil {
		t.Fatal(err)
	}
	if len(order) != len(nodes) {
		t.Fatalf("order has %d nodes, want %d", len(order), len(nodes))
	}
	for i, n := range order {
		for _, need := range needs(n) {
			if at := slices.Index(order, need); at > i {
				t.Errorf("%s at %d comes before %s at %d", n, i, need, at)
			}
		}
	}
}

func TestSortKeepsTheGivenOrderWhereItMay(t *testing.T) {
	nodes, needs := castle()
	order, err := graph.Sort(nodes, needs)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(order, nodes) {
		t.Errorf("order %v, want the given %v", order, nodes)
	}
}

func TestSortNamesTheWholeCycle(t *testing.T) {
	edges := map[string][]string{"a": {"b"}, "b": {"c"}, "c": {"b"}}
	_, err := graph.Sort([]string{"a", "b", "c"}, func(n string) []string { return edges[n] })
	var cycle *graph.CycleError[string]
	if !errors.As(err, &cycle) {
		t.Fatalf("got %v, want a CycleError", err)
	}
	if got, want := err.Error(), "cycle: b needs c needs b"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestReverseTurnsEveryEdge(t *testing.T) {
	nodes, needs := castle()
	back := graph.Reverse(nodes, needs)
	if got, want := back("platform"), []string{"eso", "metallb", "longhorn"}; !slices.Equal(got, want) {
		t.Errorf("platform is needed by %v, want %v", got, want)
	}
	order, err := graph.Sort(nodes, back)
	if err != nil {
		t.Fatal(err)
	}
	if slices.Index(order, "platform") < slices.Index(order, "flux") {
		t.Errorf("reversed order %v razes the platform before flux", order)
	}
}

func TestClosureIsEverythingThatANodeNeeds(t *testing.T) {
	nodes, needs := castle()
	got := graph.Closure(nodes, needs, "pool")
	if want := []string{"infisical", "keys", "platform", "metallb", "pool"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestWalkStartsANodeWhenAllThatItNeedsHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, needs := castle()
		release := map[string]chan struct{}{}
		for _, n := range nodes {
			release[n] = make(chan struct{})
		}
		var mu sync.Mutex
		started := map[string]bool{}
		done := make(chan error)
		go func() {
			done <- graph.Walk(t.Context(), nodes, needs, func(_ context.Context, n string) error {
				mu.Lock()
				started[n] = true
				mu.Unlock()
				<-release[n]
				return nil
			}, nil)
		}()
		running := func() []string {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			var names []string
			for _, n := range nodes {
				if started[n] {
					names = append(names, n)
				}
			}
			return names
		}
		expect := func(want ...string) {
			t.Helper()
			if got := running(); !slices.Equal(got, want) {
				t.Fatalf("started %v, want %v", got, want)
			}
		}
		expect("infisical", "keys")
		close(release["keys"])
		expect("infisical", "keys")
		close(release["infisical"])
		expect("infisical", "keys", "platform")
		close(release["platform"])
		expect("infisical", "keys", "platform", "eso", "metallb", "longhorn")
		close(release["metallb"])
		expect("infisical", "keys", "platform", "eso", "metallb", "pool", "longhorn")
		for _, n := range []string{"eso", "store", "pool", "longhorn", "flux"} {
			close(release[n])
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	})
}

// A walk that looked at all nodes each time one ends would cost a large cluster more per stage than a small
// one.
func TestWalkAsksWhatANodeNeedsNoMoreOftenForMoreNodes(t *testing.T) {
	asked := func(chains int) int {
		const length = 4
		var nodes []int
		for n := range chains * length {
			nodes = append(nodes, n)
		}
		count := 0
		needs := func(n int) []int {
			count++
			if n < chains {
				return nil
			}
			return []int{n - chains}
		}
		err := graph.Walk(t.Context(), nodes, needs, func(context.Context, int) error { return nil }, nil)
		if err != nil {
			t.Fatal(err)
		}
		return count
	}
	if few, many := asked(10), asked(1000); many != 100*few {
		t.Errorf("%d questions for 40 nodes, %d for 4000", few, many)
	}
}

func TestWalkSkipsWhatNeedsAFailureAndNothingElse(t *testing.T) {
	nodes, needs := castle()
	broken := errors.New("release metallb: timed out")
	var mu sync.Mutex
	var ran []string
	var skipped []graph.Skipped[string]
	err := graph.Walk(t.Context(), nodes, needs, func(_ context.Context, n string) error {
		mu.Lock()
		defer mu.Unlock()
		ran = append(ran, n)
		if n == "metallb" {
			return broken
		}
		return nil
	}, func(s graph.Skipped[string]) { skipped = append(skipped, s) })
	if !errors.Is(err, broken) || strings.Contains(err.Error(), "pool") {
		t.Errorf("got %v, want only the root cause", err)
	}
	if want := []graph.Skipped[string]{{Node: "pool", Cause: "metallb"}}; !slices.Equal(skipped, want) {
		t.Errorf("skipped %v, want %v", skipped, want)
	}
	if len(ran) != len(nodes)-1 || slices.Contains(ran, "pool") {
		t.Errorf("ran %v: everything but pool should have run", ran)
	}
}

func TestWalkNamesTheFirstFailureToAllThatNeedIt(t *testing.T) {
	nodes, needs := castle()
	causes := map[string]string{}
	err := graph.Walk(t.Context(), nodes, needs, func(_ context.Context, n string) error {
		if n == "platform" {
			return errors.New("quota exceeded")
		}
		return nil
	}, func(s graph.Skipped[string]) { causes[s.Node] = s.Cause })
	if err == nil {
		t.Fatal("a failed node gave no error")
	}
	for _, n := range []string{"eso", "store", "metallb", "pool", "longhorn", "flux"} {
		if causes[n] != "platform" {
			t.Errorf("%s was skipped because of %q, want platform", n, causes[n])
		}
	}
}

func TestWalkCancelledIsNeverASuccess(t *testing.T) {
	nodes, needs := castle()
	stop := errors.New("interrupted")
	ctx, cancel := context.WithCancelCause(t.Context())
	var mu sync.Mutex
	var ran []string
	err := graph.Walk(ctx, nodes, needs, func(_ context.Context, n string) error {
		mu.Lock()
		defer mu.Unlock()
		ran = append(ran, n)
		cancel(stop)
		return nil
	}, nil)
	if !errors.Is(err, stop) {
		t.Errorf("got %v, want the cause of the cancellation", err)
	}
	if slices.Contains(ran, "platform") {
		t.Errorf("ran %v: platform was started after the cancellation", ran)
	}
}
