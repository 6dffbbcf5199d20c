package create

import (
	"context"
	"slices"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/graph"
	"github.com/ephemeral-castle/castle/internal/run"
)

// task is one node of a run's graph.
type task struct {
	name  string
	stage *config.Stage // that it belongs to
	needs []*task
	do    func(context.Context) error
}

func (t *task) String() string { return t.name }

func taskNeeds(t *task) []*task { return t.needs }

// createTasks turns the chosen stages into tasks. Three rules define the edges:
//
// A stage starts when the stages that it needs are ready, their deferred gates included. A needed stage
// that was not chosen gets a task that checks it.
//
// A preflight starts as soon as its inputs are known. All preflights precede all stages, except the
// stages whose outputs a preflight reads: castle reports a conflict before it changes anything.
//
// A gate with needs waits for them.
func (c *creation) createTasks(chosen []*config.Stage) []*task {
	b := &taskBuilder{
		r: c, chosen: chosen, ready: map[*config.Stage]*task{}, checked: map[*config.Stage]*task{},
	}
	order, err := graph.Sort(chosen, run.StageNeeds)
	if err != nil {
		order = chosen // the configuration is valid, so it has no cycles
	}
	first := readBy(chosen)
	for _, s := range order {
		if slices.Contains(first, s) {
			b.addStage(s)
		}
	}
	for _, s := range chosen {
		b.addPreflights(s)
	}
	for _, s := range order {
		if !slices.Contains(first, s) {
			b.addStage(s)
		}
	}
	for _, s := range chosen {
		b.connectLate(s)
	}
	return b.tasks
}

// readBy returns the stages that preflights read from, with all of their needs.
func readBy(chosen []*config.Stage) []*config.Stage {
	var read []*config.Stage
	for _, s := range chosen {
		for _, p := range s.Preflights {
			read = append(read, p.Needs...)
		}
	}
	return graph.Closure(chosen, run.StageNeeds, read...)
}

type taskBuilder struct {
	r          *creation
	chosen     []*config.Stage
	tasks      []*task
	preflights []*task
	ready      map[*config.Stage]*task // the task that completes a stage
	checked    map[*config.Stage]*task
}

func (b *taskBuilder) add(t *task) *task {
	b.tasks = append(b.tasks, t)
	return t
}

// after returns the tasks that must succeed for stages to be ready.
func (b *taskBuilder) after(stages []*config.Stage) []*task {
	var needs []*task
	for _, s := range stages {
		t := b.ready[s]
		if t == nil && !slices.Contains(b.chosen, s) {
			t = b.check(s)
		}
		if t != nil && !slices.Contains(needs, t) {
			needs = append(needs, t)
		}
	}
	return needs
}

func (b *taskBuilder) addStage(s *config.Stage) {
	apply := b.add(&task{name: s.Name, stage: s})
	apply.needs = append(b.after(s.Needs), b.preflights...)
	late := run.DeferredGates(s)
	apply.do = func(ctx context.Context) error { return b.r.stage(ctx, s, len(late) > 0) }
	b.ready[s] = apply
	if len(late) > 0 {
		b.ready[s] = b.add(&task{
			name: s.Name + " gates", stage: s, needs: []*task{apply},
			do: func(ctx context.Context) error { return b.r.waitDeferredGates(ctx, s, late) },
		})
	}
}

func (b *taskBuilder) addPreflights(s *config.Stage) {
	for _, p := range s.Preflights {
		b.preflights = append(b.preflights, b.add(&task{
			name: "preflight " + p.Name(), stage: s, needs: b.after(p.Needs),
			do: func(ctx context.Context) error { return b.r.earlyPreflight(ctx, s, p) },
		}))
	}
}

// connectLate adds the needs of a stage's deferred gates, once every stage has its task.
func (b *taskBuilder) connectLate(s *config.Stage) {
	for _, g := range run.DeferredGates(s) {
		for _, need := range b.after(g.Needs) {
			if waiting := b.ready[s]; !slices.Contains(waiting.needs, need) {
				waiting.needs = append(waiting.needs, need)
			}
		}
	}
}

// check returns the task that checks a stage that was not chosen but is needed.
func (b *taskBuilder) check(s *config.Stage) *task {
	if t := b.checked[s]; t != nil {
		return t
	}
	t := b.add(&task{name: s.Name + " (not selected)", stage: s})
	b.checked[s] = t
	t.do = func(ctx context.Context) error { return b.r.requireReady(ctx, s) }
	// Its gates may read outputs of the stages that it needs, so those are checked too.
	t.needs = b.after(s.Needs)
	return t
}
