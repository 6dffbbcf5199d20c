package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/zclconf/go-cty/cty"
	ctyjson "github.com/zclconf/go-cty/cty/json"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/folders"
	"github.com/ephemeral-castle/castle/internal/graph"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/secret"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/survivor"
	"github.com/ephemeral-castle/castle/internal/terraform"
	"github.com/ephemeral-castle/castle/stages"
	"github.com/ephemeral-castle/castle/templates"
)

// pollEvery is the pause of create.sh's loops.
const pollEvery = 5 * time.Second

// sideBySide are the layers that the script runs in parallel once all others are ready.
var sideBySide = []string{"networking", "storage", "gitops"}

// A step is one stage of the script, and its parts in seconds. The conditions that wait for other stages are
// a step of their own, at the end: create.sh waited for Flux last.
type step struct {
	Stage, Layer      string
	Late              bool
	Began, Ended      time.Time
	Init, Apply, Wait float64
}

// script creates a cluster as create.sh did: init and apply of one root after the other, layer by layer, and
// a loop for each condition. It has castle's modules, values and conditions, and nothing else of castle.
type script struct {
	dir     string
	cluster *config.Cluster
	outputs *run.Outputs
	ready   map[*config.Stage]chan struct{} // closed when a stage and its conditions are ready

	mu    sync.Mutex
	steps []step
}

// runScript runs the script in the lab and returns its steps.
func runScript(ctx context.Context, name string) ([]step, error) {
	repository, err := folders.Find(".")
	if err != nil {
		return nil, err
	}
	o := cluster.Options{Repository: repository, Cluster: name, Environ: os.Environ(),
		Library: stages.Library, Templates: templates.Files}
	c, err := o.Load()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "replay")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	s := &script{dir: dir, cluster: c, outputs: run.NewOutputs(&secret.Masker{}),
		ready: map[*config.Stage]chan struct{}{}}
	order, err := graph.Sort(c.Stages, run.StageNeeds)
	if err != nil {
		return nil, err
	}
	layers := map[string][]*config.Stage{}
	for _, one := range order {
		s.ready[one] = make(chan struct{})
		layers[one.Layer] = append(layers[one.Layer], one)
	}
	for _, layer := range config.Layers() {
		if !isSideBySide(layer) {
			if err := s.layer(ctx, layers[layer]); err != nil {
				return nil, err
			}
		}
	}
	if err := s.parallel(ctx, layers); err != nil {
		return nil, err
	}
	for _, one := range order {
		if late := one.DeferredGates(); len(late) > 0 {
			this := step{Stage: one.Name, Layer: one.Layer, Late: true, Began: time.Now()}
			if err := this.part(&this.Wait, func() error { return s.wait(ctx, one, late) }); err != nil {
				return nil, fmt.Errorf("%s: %w", one.Name, err)
			}
			s.ended(this)
		}
	}
	return s.steps, nil
}

// parallel runs the last layers side by side.
func (s *script) parallel(ctx context.Context, layers map[string][]*config.Stage) (err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	failed := make(chan error)
	for _, layer := range sideBySide {
		go func() { failed <- s.layer(ctx, layers[layer]) }()
	}
	for range sideBySide {
		if one := <-failed; one != nil {
			err = errors.Join(err, one)
			stop()
		}
	}
	return err
}

func isSideBySide(layer string) bool {
	for _, l := range sideBySide {
		if l == layer {
			return true
		}
	}
	return false
}

// layer runs the stages of a layer, one after the other.
func (s *script) layer(ctx context.Context, layer []*config.Stage) error {
	for _, one := range layer {
		if err := s.stage(ctx, one); err != nil {
			return fmt.Errorf("%s: %w", one.Name, err)
		}
	}
	return nil
}

func (s *script) stage(ctx context.Context, one *config.Stage) error {
	if err := s.await(ctx, one.Needs); err != nil {
		return err
	}
	this := step{Stage: one.Name, Layer: one.Layer, Began: time.Now()}
	inputs, diags := one.Inputs(s.scope(one))
	if diags.HasErrors() {
		return diags
	}
	root := &terraform.Root{Dir: filepath.Join(s.dir, one.Name),
		StatePath: filepath.Join(s.dir, one.Name+".tfstate")}
	err := root.Materialise(one.Module, terraform.Override{InCluster: one.InCluster,
		Kubeconfig: s.kubeconfig(), Inputs: inputs})
	if err != nil {
		return err
	}
	err = this.part(&this.Init, func() error {
		return s.terraform(ctx, root.Dir, nil, "init", "-input=false")
	})
	if err == nil {
		err = this.part(&this.Apply, func() error { return s.apply(ctx, one, root.Dir) })
	}
	if err == nil {
		err = this.part(&this.Wait, func() error { return s.wait(ctx, one, one.ImmediateGates()) })
	}
	if err != nil {
		return err
	}
	s.ended(this)
	close(s.ready[one])
	return nil
}

// scope is what the expressions of a stage know. The script has no notion of data that survive: they are new.
func (s *script) scope(one *config.Stage) config.Scope {
	sc := s.outputs.Scope(one)
	sc.Births = survivor.Births{}
	for _, data := range one.Survivors {
		sc.Births[data.Label] = survivor.Born(s.cluster.Name, data.Label,
			func(birth string) string { return "/" + data.Label + "/" + birth }, time.Now())
	}
	return sc
}

// part does a part of the step and measures it.
func (st *step) part(seconds *float64, do func() error) error {
	began := time.Now()
	err := do()
	*seconds = time.Since(began).Seconds()
	return err
}

// ended keeps and reports a step.
func (s *script) ended(one step) {
	one.Ended = time.Now()
	fmt.Fprintf(os.Stderr, "replay: %-18s %6.1fs (init %.1fs, apply %.1fs, loops %.1fs)\n", one.Stage,
		one.Ended.Sub(one.Began).Seconds(), one.Init, one.Apply, one.Wait)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.steps = append(s.steps, one)
}

// await waits for stages of another layer that runs at the same time.
func (s *script) await(ctx context.Context, needs []*config.Stage) error {
	for _, need := range needs {
		select {
		case <-s.ready[need]:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

func (s *script) kubeconfig() string { return filepath.Join(s.dir, "kubeconfig") }

// apply applies a root and reads its outputs. The platform's kubeconfig goes into a file.
func (s *script) apply(ctx context.Context, one *config.Stage, dir string) error {
	if err := s.terraform(ctx, dir, nil, "apply", "-auto-approve", "-input=false"); err != nil {
		return err
	}
	var text strings.Builder
	if err := s.terraform(ctx, dir, &text, "output", "-json"); err != nil {
		return err
	}
	outputs, err := decode([]byte(text.String()))
	if err != nil {
		return err
	}
	s.outputs.Set(one, run.WithNulls(one, outputs))
	if access := s.outputs.Target().Kubeconfig; access != nil {
		return os.WriteFile(s.kubeconfig(), access, 0o600)
	}
	return nil
}

// decode reads the result of `terraform output -json`.
func decode(text []byte) (map[string]state.Output, error) {
	var all map[string]struct {
		Sensitive   bool
		Type, Value json.RawMessage
	}
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, err
	}
	outputs := map[string]state.Output{}
	for name, one := range all {
		typ, err := ctyjson.UnmarshalType(one.Type)
		var value cty.Value
		if err == nil {
			value, err = ctyjson.Unmarshal(one.Value, typ)
		}
		if err != nil {
			return nil, fmt.Errorf("output %s: %w", name, err)
		}
		outputs[name] = state.Output{Value: value, Sensitive: one.Sensitive}
	}
	return outputs, nil
}

// wait polls conditions of a stage, one after the other, until each holds once.
func (s *script) wait(ctx context.Context, one *config.Stage, gates []*config.Gate) error {
	for _, g := range gates {
		if g.OfData { // it compares with a save
			continue
		}
		values, diags := g.Values(s.scope(one))
		if diags.HasErrors() {
			return diags
		}
		bound, err := g.Type.New(g.Name(), s.outputs.Target(), values)
		if err != nil {
			return err
		}
		end := time.Now().Add(g.Policy.EffectiveTimeout())
		for err := bound.Check(ctx); err != nil; err = bound.Check(ctx) {
			if time.Now().After(end) {
				return fmt.Errorf("%s: %w", g.Name(), err)
			}
			select {
			case <-time.After(pollEvery):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
	return nil
}

// terraform runs a command as a script does: every command starts the providers anew.
func (s *script) terraform(ctx context.Context, dir string, stdout *strings.Builder, args ...string) error {
	cmd := exec.CommandContext(ctx, "terraform", append(args, "-no-color")...)
	cmd.Dir = dir
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = time.Minute
	var text strings.Builder
	cmd.Stdout, cmd.Stderr = &text, &text
	if stdout != nil {
		cmd.Stdout = stdout
	}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("terraform %s: %w\n%s", args[0], err, text.String())
	}
	return nil
}
