package volumes

import (
	"context"
	"maps"
	"slices"
	"sync/atomic"
	"time"
)

// retries is how long Longhorn waits after something that failed, until it looks at the object again.
const retries = 30 * time.Second

// tasks run beside the looks: requests to the store take their time, and fail late.
type tasks struct {
	all    map[string]*task
	failed map[string]bool
}

// task is one of them. A look that finds it ended takes its value.
type task struct {
	cancel  context.CancelFunc
	ended   chan struct{}
	percent atomic.Int64
	value   any
	err     error
}

func newTasks() *tasks { return &tasks{all: map[string]*task{}, failed: map[string]bool{}} }

// close ends all tasks, and waits for them.
func (t *tasks) close() {
	for _, one := range t.all {
		one.cancel()
	}
	t.wait()
}

// wait waits until all tasks have ended.
func (t *tasks) wait() {
	for _, one := range slices.Collect(maps.Values(t.all)) {
		<-one.ended
	}
}

// runs reports whether there is a task of a name, ended or not.
func (t *tasks) runs(name string) bool { return t.all[name] != nil }

// start begins a task, unless there is one of this name.
func (t *tasks) start(name string, do func(context.Context, *task) (any, error)) *task {
	if one := t.all[name]; one != nil {
		return one
	}
	ctx, cancel := context.WithCancel(context.Background()) // it lasts longer than a look
	one := &task{cancel: cancel, ended: make(chan struct{})}
	t.all[name] = one
	go func() {
		defer close(one.ended)
		one.value, one.err = do(ctx, one)
	}()
	return one
}

// take removes a task that has ended; false if it has not.
func (t *tasks) take(name string) (value any, err error, ended bool) {
	one := t.all[name]
	if one == nil {
		return nil, nil, false
	}
	select {
	case <-one.ended:
	default:
		return nil, nil, false
	}
	one.cancel()
	delete(t.all, name)
	t.failed[name] = one.err != nil
	return one.value, one.err, true
}

// due reports whether a task may start: not for a while after it has failed.
func (s *state) due(name string) bool {
	if s.tasks.runs(name) || !s.tasks.failed[name] {
		s.w.Restart("retry " + name)
		return true
	}
	return s.w.Passed("retry "+name, retries)
}

// ask starts a task that is due, and takes its value once it has ended. The caller asks again until then.
func (s *state) ask(name string, do func(context.Context, *task) (any, error)) (value any, err error,
	ended bool) {
	if s.due(name) {
		s.tasks.start(name, do)
	}
	return s.tasks.take(name)
}
