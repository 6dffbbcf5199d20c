package create

import (
	"context"
	"slices"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/graph"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/run/survival"
)

// task is one node of a run's graph.
type task struct {
	name  string
	stage *config.Stage // that it belongs to
	needs []*task
	do    func(context.Context) error
	ended string // how it ended without success, for the stages that it stops
}

func (t *task) String() string { return t.name }

// createTasks turns the chosen stages, each after its needs, into tasks. A stage starts when the stages that
// it needs are ready, their deferred gates included. A needed stage that was not chosen gets a task that
// checks it. A preflight, and the decision how data begin, starts as soon as its inputs are known. All
// preflights precede all stages, except those whose outputs a preflight reads: castle reports a conflict
// before it changes anything. These stages follow the preflights that read fewer of them. A gate with needs
// waits for them.
func (c *creation) createTasks(chosen []*config.Stage) []*task {
	b := &taskBuilder{creation: c, ready: map[*config.Stage]*task{}}
	type early struct {
		task  *task
		needs []*config.Stage
		reads []*config.Stage
	}
	var all []early
	add := func(s *config.Stage, name string, edges []config.Edge, do func(context.Context) error) {
		needs := c.reads(edges)
		all = append(all, early{&task{name: name, stage: s, do: do}, needs,
			graph.Closure(chosen, run.StageNeeds, needs...)})
	}
	for _, s := range chosen {
		for _, p := range s.Preflights {
			add(s, "preflight "+p.Name(), p.Edges(),
				func(ctx context.Context) error { return c.earlyPreflight(ctx, s, p) })
		}
		for _, d := range s.Survivors {
			add(s, "data "+d.Label, d.Edges(), func(ctx context.Context) error {
				return survival.Decide(ctx, c.run, s, d, c.backup)
			})
		}
	}
	slices.SortStableFunc(all, func(a, b early) int { return len(a.reads) - len(b.reads) })
	for _, x := range all {
		for _, s := range x.reads {
			if b.ready[s] == nil {
				b.addStage(s)
			}
		}
		x.task.needs = b.after(x.needs)
		b.preflights = append(b.preflights, b.add(x.task))
	}
	for _, s := range chosen {
		if b.ready[s] == nil {
			b.addStage(s)
		}
	}
	for _, s := range chosen {
		b.connectLate(s)
	}
	return b.tasks
}

// reads returns the stages that precede a task because it reads outputs that castle cannot compute.
func (c *creation) reads(edges []config.Edge) (stages []*config.Stage) {
	for _, edge := range edges {
		if !c.run.Outputs.IsComputed(edge) {
			stages = append(stages, edge.From)
		}
	}
	return stages
}

type taskBuilder struct {
	creation   *creation
	tasks      []*task
	preflights []*task
	ready      map[*config.Stage]*task // the task that completes a stage, or checks one that was not chosen
}

func (b *taskBuilder) add(t *task) *task {
	b.tasks = append(b.tasks, t)
	return t
}

// after returns the tasks that must succeed for stages to be ready. The chosen ones have their tasks by now.
func (b *taskBuilder) after(stages []*config.Stage) []*task {
	var needs []*task
	for _, s := range stages {
		t := b.ready[s]
		if t == nil {
			t = b.add(&task{name: s.Name + " (not selected)", stage: s})
			t.do = func(ctx context.Context) error { return b.creation.requireReady(ctx, s) }
			// Its gates may read outputs of the stages that it needs, so those are checked too.
			b.ready[s], t.needs = t, b.after(s.Needs)
		}
		if !slices.Contains(needs, t) {
			needs = append(needs, t)
		}
	}
	return needs
}

func (b *taskBuilder) addStage(s *config.Stage) {
	apply := b.add(&task{name: s.Name, stage: s})
	apply.needs = append(b.after(s.Needs), b.preflights...)
	late := s.DeferredGates()
	apply.do = func(ctx context.Context) error { return b.creation.stage(ctx, s, len(late) > 0) }
	b.ready[s] = apply
	if len(late) > 0 {
		b.ready[s] = b.add(&task{name: s.Name + " gates", stage: s, needs: []*task{apply},
			do: func(ctx context.Context) error { return b.creation.waitDeferredGates(ctx, s, late) }})
	}
}

// connectLate adds the needs of a stage's deferred gates, once every stage has its task.
func (b *taskBuilder) connectLate(s *config.Stage) {
	for _, g := range s.DeferredGates() {
		for _, need := range b.after(g.Needs) {
			if waiting := b.ready[s]; !slices.Contains(waiting.needs, need) {
				waiting.needs = append(waiting.needs, need)
			}
		}
	}
}
