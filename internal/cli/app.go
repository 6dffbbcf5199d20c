package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/ephemeral-castle/castle/internal/castle"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/ui"
	"github.com/ephemeral-castle/castle/stages"
	"github.com/ephemeral-castle/castle/templates"
)

// app is what every command is built with: the streams, the environment and the
// flags that all commands share. What costs something is a method.
type app struct {
	version        string
	stdin          io.Reader
	stdout, stderr io.Writer
	environ        []string

	directory   string
	stateDir    string
	output      string
	parallelism int
	vars        []string
	varFiles    []string
	verbose     bool

	mu      sync.Mutex
	working *castle.Castle  // whom an interrupt concerns
	lines   *ui.Lines       // how the run is shown, unless as JSON
	prompts bool            // the user is being asked something
	show    func()          // see hide
	relay   func(times int) // hands interrupts on to whom they concern instead
}

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "castle",
		Short: "Raise a Kubernetes cluster from nothing, and raze it without a trace",
		Long: `castle raises a Kubernetes cluster layer by layer (secrets, platform, engine,
networking, storage, gitops) with Terraform, waits at each gate until what was
built is really ready, and takes it all down again.

Exit codes: 0 done, 1 a stage failed, 2 usage or configuration, 3 a confirmation
was needed, 4 a preflight refused, 5 a gate did not open, 6 something is left
over, 7 locked by another run, 130 interrupted.`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          unknownCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	f := root.PersistentFlags()
	f.StringVarP(&a.directory, "directory", "C", ".", "work as if started in `DIR`; clusters/ is looked for there and above")
	f.StringVar(&a.stateDir, "state-dir", "", "keep state below `DIR` (default $CASTLE_STATE_DIR, $XDG_STATE_HOME/castle or ~/.local/state/castle)")
	f.StringVarP(&a.output, "output", "o", "text", "how to print: text or json")
	f.IntVar(&a.parallelism, "parallelism", 0, "how many Terraform processes may run at a time (default 4)")
	f.BoolVarP(&a.verbose, "verbose", "v", false, "show every resource and step")
	root.SetFlagErrorFunc(usageError)
	root.SuggestionsMinimumDistance = 2
	root.CompletionOptions.HiddenDefaultCmd = true
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if err := a.checkOutput(cmd); err != nil {
			return usageError(cmd, err)
		}
		if a.parallelism < 0 {
			return usageError(cmd, fmt.Errorf("--parallelism %d is below zero", a.parallelism))
		}
		return nil
	}
	root.AddCommand(newInit(a), newNew(a), newPlan(a), newCreate(a), newDestroy(a), newRecreate(a), newNuke(a), newCheck(a), newDoctor(a), newStatus(a), newGate(a), newRehearse(a), newSecrets(a), newOutput(a), newEnv(a), newGraph(a), newStage(a),
		newState(a), newTerraform(a), newVersion(a))
	return root
}

// valueFlags adds the flags that give variables their values.
func (a *app) valueFlags(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&a.vars, "var", nil, "set a variable, `NAME=VALUE`; may be repeated (not for secrets: others can see it)")
	cmd.Flags().StringArrayVar(&a.varFiles, "var-file", nil, "read variables from `FILE`; may be repeated, the last one wins")
}

// open reads the cluster's configuration.
func (a *app) open(name string, reporter castle.Reporter) (*castle.Castle, error) {
	return a.openAs(castle.Options{Cluster: name, Reporter: reporter})
}

// openAs completes o and opens the cluster that it names.
func (a *app) openAs(o castle.Options) (*castle.Castle, error) {
	o, err := a.complete(o)
	if err != nil {
		return nil, err
	}
	if o.Reporter == nil {
		o.Reporter = ui.NewAnswers(a.stderr)
	}
	c, err := castle.Open(o)
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.working = c
	return c, nil
}

// complete adds to o what the flags that all commands share say, and castle's own.
func (a *app) complete(o castle.Options) (castle.Options, error) {
	if _, err := os.Stat(a.directory); err != nil {
		return o, &castle.UsageError{Message: "--directory: " + err.Error()}
	}
	repository, err := config.FindRepository(a.directory)
	if err != nil && !o.Recorded {
		return o, &castle.UsageError{Message: err.Error()}
	}
	vars := map[string]string{}
	for _, v := range a.vars {
		name, value, ok := strings.Cut(v, "=")
		if !ok {
			return o, &castle.UsageError{Message: fmt.Sprintf("--var %s: write it as NAME=VALUE", v)}
		}
		vars[name] = value
	}
	o.Repository, o.StateDir, o.Vars, o.VarFiles = repository, a.stateDir, vars, a.varFiles
	o.Environ, o.Parallelism, o.Version = a.environ, a.parallelism, a.version
	o.Library, o.Templates = stages.Library, templates.Files
	return o, nil
}

// kill ends everything that the running command has started.
func (a *app) kill(ctx context.Context) {
	a.mu.Lock()
	c := a.working
	a.mu.Unlock()
	if c == nil {
		return
	}
	run := c.Active()
	if run == nil {
		return
	}
	if err := run.Kill(ctx); err != nil {
		fmt.Fprintln(a.stderr, "castle:", err)
	}
}

// runReporter returns how a run is shown, and what to do when it has ended.
func (a *app) runReporter() (castle.Reporter, func()) {
	surviveClosedPipe()
	if a.output == "json" {
		return ui.NewJSON(a.stdout), func() {}
	}
	lines := a.progress()
	return lines, func() { lines.Timeline(a.stdout) }
}

// progress shows on stderr how something goes on.
func (a *app) progress() *ui.Lines {
	lines := ui.NewLines(a.stderr, isTerminal(a.stderr), a.verbose)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lines = lines
	return lines
}

// prompting says whether the user is being asked something.
func (a *app) prompting(is bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.prompts = is
}

// relaying hands interrupts from the second on to somebody else; the first ends
// the command's context.
func (a *app) relaying(to func(times int)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.relay = to
}

// self is the path of the running castle.
func self() (string, error) { return os.Executable() }
