package run

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/siderolabs/gen/xslices"
	"github.com/zclconf/go-cty/cty"
	ctyjson "github.com/zclconf/go-cty/cty/json"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/foreign"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/ownfile"
	"github.com/ephemeral-castle/castle/internal/providers"
	"github.com/ephemeral-castle/castle/internal/secretstore"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/state/recorded"
	"github.com/ephemeral-castle/castle/internal/terraform"
	"github.com/ephemeral-castle/castle/internal/tfeval"
)

// Workspace is one stage's root module in a run, with its log and intent.
type Workspace struct {
	Run          *Run
	Root         *terraform.Root
	Dir          *state.Stage
	Stage, Layer string
	Silent       bool      // its applies report no warning: the caller does what they would ask for
	log          io.Closer // masks what it writes to file
	file         lazyLog
	intent       atomic.Pointer[state.IntentLog] // of the running apply
	guard        atomic.Pointer[Guard]           // likewise
	warned       sync.Map                        // the warnings that were reported
	planned      atomic.Int64                    // the resources of its plan, as far as they are known
	planless     atomic.Bool                     // the running apply plans, and reports that first
}

// OpenWorkspace returns a stage's workspace, connected to its log and the run's events.
func (r *Run) OpenWorkspace(stage, layer string) (*Workspace, error) {
	binary, err := r.Binary()
	if err != nil {
		return nil, err
	}
	w := &Workspace{Run: r, Dir: r.Cluster.Dir.Stage(stage), Stage: stage, Layer: layer}
	w.file.open = func() (io.WriteCloser, error) { return r.Files.Log(stage) }
	log := r.Cluster.Masker.Writer(&w.file)
	w.log = log
	w.Root = &terraform.Root{Binary: binary, Dir: w.Dir.Work(), StatePath: w.Dir.StatePath(),
		PluginCache: r.Cluster.Shared(".plugins"), Env: r.Cluster.Options.Environ, Run: r.ID, Log: log,
		Identities: cluster.Identities(), OnWrite: w.beginChange, OnError: w.noteUnsure,
		OnWarning:  w.noteWarning,
		OnResource: w.onResource, OnConnect: w.refuseRedirects, Hide: r.Cluster.Masker.Hide}
	if begin := r.Cluster.Options.OnCommand; begin != nil {
		w.Root.OnCommand = func(command string) (map[string]string, func(error)) {
			environ, end := begin(layer, stage, command)
			return environ, func(err error) {
				failure := ""
				if err != nil {
					failure = r.Cluster.Masker.Hide(err.Error())
				}
				end(failure)
			}
		}
	}
	r.workspaces.add(w)
	return w, nil
}

// RecordedWorkspace opens a stage's workspace with the module of its last apply, ready for Terraform.
func (r *Run) RecordedWorkspace(ctx context.Context, rec state.Record) (*Workspace, error) {
	work, err := r.OpenWorkspace(rec.Name, rec.Layer)
	if err != nil {
		return nil, err
	}
	if err := work.PrepareRecorded(ctx); err != nil {
		return nil, errors.Join(err, work.Close())
	}
	return work, nil
}

// beginChange records that Terraform may change the state. In the store is then what a run on another machine
// completes the change by: the intent, the record, the identities of new machines.
func (w *Workspace) beginChange(ctx context.Context) error {
	if err := state.BeginChange(w.Dir); err != nil {
		return err
	}
	return w.Run.lock.Commit(ctx, fmt.Sprintf("before %s/%s is changed", w.Layer, w.Stage))
}

// Close ends the stage's providers and closes its log.
func (w *Workspace) Close() error {
	w.Root.StopProviders()
	return errors.Join(w.log.Close(), w.file.Close())
}

// lazyLog creates a stage's log file with its first line, so that an idle run leaves no empty logs. Each line
// begins with its time, by which `castle logs` merges it with the journal.
type lazyLog struct {
	open   func() (io.WriteCloser, error)
	file   io.WriteCloser
	inLine bool // the last line has no end yet
}

func (l *lazyLog) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if l.file == nil {
		file, err := l.open()
		if err != nil {
			return 0, err
		}
		l.file = file
	}
	var text []byte
	for line := range bytes.Lines([]byte(foreign.Text(string(p)))) {
		if !l.inLine {
			text = append(time.Now().UTC().AppendFormat(text, state.LogTime), ' ')
		}
		text = append(text, line...)
		l.inLine = !bytes.HasSuffix(line, []byte{'\n'})
	}
	if _, err := l.file.Write(text); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (l *lazyLog) Close() error {
	if l.file == nil {
		return nil
	}
	return l.file.Close()
}

// Step runs one step of the stage.
func (w *Workspace) Step(name string, do func() error) error {
	return w.Run.Step(w.Stage, w.Layer, name, do)
}

// Prepare writes a stage's module and its inputs to the work directory and runs init. With nil inputs the
// module is not ready for anything else.
func (w *Workspace) Prepare(ctx context.Context, s *config.Stage, inputs map[string]cty.Value) error {
	w.Root.Providers = w.Run.Providers
	return w.prepare(ctx, s.Module, terraform.Override{InCluster: s.InCluster, Inputs: inputs})
}

// PrepareRecorded writes the module and inputs of the stage's last apply to the work directory and runs init.
func (w *Workspace) PrepareRecorded(ctx context.Context) error {
	rec, err := w.Dir.Record()
	if err != nil {
		return err
	}
	module, inputs, err := recorded.Module(w.Dir, w.Run.Cluster.Command("create"))
	if err != nil {
		return err
	}
	w.Root.Providers = providers.Recorded{Shared: w.Run.Providers, Module: module, Work: w.Dir.Work()}
	return w.prepare(ctx, module, terraform.Override{InCluster: rec.InCluster, Kept: inputs})
}

func (w *Workspace) prepare(ctx context.Context, module fs.FS, o terraform.Override) error {
	o.Kubeconfig = w.Run.Cluster.Dir.Kubeconfig()
	if len(o.InCluster) > 0 && (o.Inputs != nil || o.Kept != nil) { // else init alone follows
		if err := w.Run.Cluster.CheckExports(); err != nil {
			return err
		}
	}
	if err := w.Root.Materialise(module, o); err != nil {
		return err
	}
	return w.Root.Init(ctx)
}

// Guard watches the changes of an apply.
type Guard interface {
	// Watch runs apply and returns its error, or why its result must not count.
	Watch(ctx context.Context, w *Workspace, apply func(context.Context) error) error
	// Follow gets the progress of each resource while apply runs.
	Follow(terraform.Change)
}

// Apply applies a plan, or without one the configuration. It writes an intent to disk first, and clears
// it only when the apply succeeded and the new state has a snapshot.
func (w *Workspace) Apply(ctx context.Context, plan *terraform.Plan, changes []state.Intended,
	guard Guard) error {
	provisioned, err := tfeval.Provisioned(w.Root.Dir)
	err = errors.Join(err, w.Dir.Snapshot()) // an import may have changed the state
	var intent *state.IntentLog
	if err == nil {
		intent, err = w.Dir.Intent().Begin(w.Run.ID, changes, provisioned)
	}
	if err != nil {
		if plan != nil {
			err = errors.Join(err, plan.Discard())
		}
		return fmt.Errorf("cannot record the intended changes, so nothing was changed: %w", err)
	}
	w.intent.Store(intent)
	w.planned.Store(countChanges(plan))
	w.planless.Store(plan == nil)
	err = guard.Watch(ctx, w, func(ctx context.Context) error {
		w.guard.Store(&guard)
		defer w.guard.Store(nil)
		return w.Root.Apply(ctx, plan)
	})
	w.intent.Store(nil)
	w.planless.Store(false)
	noted := intent.Close()
	if err = errors.Join(err, w.Dir.Snapshot()); err != nil {
		return errors.Join(err, noted)
	}
	return w.Dir.Intent().Clear()
}

// countChanges returns the number of resources that an apply of the plan reports; 0 without a plan.
func countChanges(plan *terraform.Plan) (n int64) {
	if plan == nil {
		return 0
	}
	for _, c := range plan.Changes {
		if isApplied(c) {
			n++
		}
	}
	return n
}

// isApplied reports whether an apply reports the progress of a planned change.
func isApplied(c terraform.Change) bool {
	return slices.Contains([]string{"create", "update", "delete", "replace"}, c.Action)
}

// onResource records the progress of a change in the intent, and reports it.
func (w *Workspace) onResource(c terraform.Change) {
	e := event.Event{Layer: w.Layer, Stage: w.Stage, Address: c.Address, Action: c.Action}
	switch c.Phase {
	case terraform.Planned:
		if w.planless.Load() && isApplied(c) {
			w.planned.Add(1)
		}
		return
	case terraform.Started:
		e.Kind, e.Total = event.ResourceStarted, int(w.planned.Load())
	case terraform.Done, terraform.Failed:
		e.Kind, e.Text, e.Seconds = event.Resource, string(c.Phase), c.Seconds
	default:
		return
	}
	if intent := w.intent.Load(); intent != nil {
		intent.Note(c.Address, c.Action, state.Phase(c.Phase)) // these three have the same names there
	}
	w.Run.Emit(e)
	if guard := w.guard.Load(); guard != nil {
		(*guard).Follow(c)
	}
}

// noteUnsure records in the intent that a failed change may still have created something: the answer was
// lost, or Terraform was interrupted.
func (w *Workspace) noteUnsure(d terraform.Diagnostic) {
	if intent := w.intent.Load(); intent != nil && d.Address != "" && !d.AlreadyExists() {
		intent.Note(d.Address, "create", state.Unsure)
	}
}

// noteWarning reports a warning of an apply once: a plan and the apply of it have the same ones.
func (w *Workspace) noteWarning(d terraform.Diagnostic) {
	if w.intent.Load() == nil || w.Silent || !d.IsForUsers() {
		return
	}
	text := w.Stage + ": " + d.Summary
	if d.Address != "" {
		text += " (" + d.Address + ")"
	}
	if _, known := w.warned.LoadOrStore(text, true); !known {
		w.Run.Notice(text)
	}
}

// refuseRedirects returns a *PreflightError if a secret store redirects the module's provider elsewhere. It
// runs before each command that connects providers: an import comes before the preflights, and a plan also
// follows one that refuses.
func (w *Workspace) refuseRedirects(ctx context.Context) error {
	names := terraform.ProviderNames(w.Root.Dir, secretstore.ProviderSources()...)
	used := func(source string) bool { return names[source] != "" }
	if !slices.ContainsFunc(secretstore.ProviderSources(), used) {
		return nil
	}
	module, err := w.module()
	if err != nil {
		return err
	}
	name, found, err := secretstore.Redirects(ctx, module, names, w.Run.Cluster.Options.Environ)
	if err == nil && len(found) > 0 {
		err = &PreflightError{Preflight: "of provider " + name, Foreign: found}
	}
	return err
}

// module reads the module in the work directory with its inputs.
func (w *Workspace) module() (*tfeval.Module, error) {
	var inputs map[string]ctyjson.SimpleJSONValue
	data, err := w.Root.Inputs()
	if err == nil {
		err = json.Unmarshal(data, &inputs)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("the inputs of stage %s: %w", w.Stage, err)
	}
	variables := map[string]cty.Value{}
	for name, v := range inputs {
		variables[name] = v.Value
	}
	return tfeval.ReadFolder(ownfile.FS(w.Root.Dir), variables), nil
}

// Untrack removes resources from the state that no longer belong to the stage.
func (w *Workspace) Untrack(ctx context.Context, lost []string) error {
	st, err := w.Run.ReadState(w.Dir)
	if err != nil {
		return err
	}
	lost = slices.DeleteFunc(slices.Clone(lost), func(address string) bool { return !st.Has(address) })
	if len(lost) == 0 {
		return nil
	}
	w.Run.Notice(fmt.Sprintf("%s: no longer as the stage left it: %s", w.Stage, strings.Join(lost, ", ")))
	return w.Step("state rm", func() error { return w.Root.Untrack(ctx, lost) })
}

// Import imports one object into the stage's state.
func (w *Workspace) Import(ctx context.Context, one gate.Import) error {
	err := w.Dir.Intent().BeginImport(w.Run.ID)
	if err == nil {
		err = w.Step("import", func() error { return w.Root.Import(ctx, one.Address, one.ID) })
	}
	if err != nil {
		return fmt.Errorf("import %s as %s: %w", one.What, one.Address, err)
	}
	w.ReportImport(one.Address, one.What)
	return nil
}

// ReportImport reports that an object was imported; text describes it.
func (w *Workspace) ReportImport(address, text string) {
	w.Run.Emit(event.Event{Kind: event.Resource, Layer: w.Layer, Stage: w.Stage, Address: address,
		Action: "import", Text: text})
}

// ProvidersFile returns the path of a cluster's lock file; "" if castle does not know the repository.
func ProvidersFile(c *cluster.Cluster) string {
	if c.Config.Dir == "" || c.Options.Repository == "" {
		return ""
	}
	return filepath.Join(c.Config.Dir, providers.FileName)
}

// providers returns the providers that the cluster's stages share.
func (r *Run) providers() *providers.Shared {
	c := r.Cluster
	return &providers.Shared{
		Path: ProvidersFile(c), Repository: c.Options.Repository, Command: c.Command, Notice: r.Notice,
		Folders: func() (folders []string, err error) {
			stages, err := c.Dir.Stages()
			for _, stage := range stages {
				dir := c.Dir.Stage(stage)
				folders = append(folders, dir.Work(), recorded.Path(dir))
			}
			return folders, err
		},
		Mirror: func(source string) string {
			origins, err := terraform.ReadOrigins(c.Options.Environ)
			if err != nil {
				return ""
			}
			return origins.Of(source).Local
		},
	}
}

// workspaces lists the open workspaces of a run, for an interrupt or a kill.
type workspaces struct {
	mu  sync.Mutex
	all []*Workspace
}

func (r *workspaces) add(w *Workspace) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, w)
}

func (r *workspaces) kill(ctx context.Context) error {
	r.mu.Lock()
	all := slices.Clone(r.all)
	r.mu.Unlock()
	return errors.Join(xslices.Map(all, func(w *Workspace) error { return w.Root.Kill(ctx) })...)
}

// running returns the operations that Terraform is working on, the oldest first.
func (r *workspaces) running() []event.Operation {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := []event.Operation{}
	for _, w := range r.all {
		for _, o := range w.Root.Operations() {
			all = append(all, event.Operation{Layer: w.Layer, Stage: w.Stage, Command: o.Command,
				Address: o.Address, Action: o.Action, Since: o.Since})
		}
	}
	slices.SortStableFunc(all, func(a, b event.Operation) int { return a.Since.Compare(b.Since) })
	return all
}
