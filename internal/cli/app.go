package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/ui"
	"github.com/ephemeral-castle/castle/stages"
	"github.com/ephemeral-castle/castle/templates"
)

// app holds the common parts of every command: streams, environment and the shared flags.
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

	interrupts interrupts
}

// Command returns castle's command tree, for tests of the documentation.
func Command() *cobra.Command { return newRoot(&app{}) }

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "castle",
		Short: "Create and destroy Kubernetes clusters with Terraform",
		Long: `castle creates a Kubernetes cluster layer by layer (secrets, platform, engine,
networking, storage, gitops) with Terraform, waits at each gate until the stage is
really ready, and destroys the whole cluster again.

Exit codes: 0 done, 1 a stage failed, 2 usage or configuration, 3 confirmation
required, 4 a preflight refused, 5 a gate timed out, 6 something is left over,
7 locked by another run, 130 interrupted.`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          unknownCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	f := root.PersistentFlags()
	f.StringVarP(&a.directory, "directory", "C", ".",
		"run in `DIR`; castle looks for clusters/ there and above")
	f.StringVar(&a.stateDir, "state-dir", "",
		"keep state below `DIR` (default $CASTLE_STATE_DIR, $XDG_STATE_HOME/castle or ~/.local/state/castle)")
	f.StringVarP(&a.output, "output", "o", "text", "output format: text or json")
	f.IntVar(&a.parallelism, "parallelism", 0, "limit of concurrent Terraform processes (default 4)")
	f.BoolVarP(&a.verbose, "verbose", "v", false, "show every resource and step")
	root.SetFlagErrorFunc(usageError)
	root.SuggestionsMinimumDistance = 2
	root.CompletionOptions.HiddenDefaultCmd = true
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		formats := strings.Fields(cmp.Or(cmd.Annotations[formatsKey], "text json"))
		if !slices.Contains(formats, a.output) {
			return usageError(cmd, fmt.Errorf("--output %q: choose one of %s", a.output,
				strings.Join(formats, ", ")))
		}
		if a.parallelism < 0 {
			return usageError(cmd, fmt.Errorf("--parallelism %d is negative", a.parallelism))
		}
		return nil
	}
	root.AddCommand(newInit(a), newNew(a), newPlan(a), newCreate(a), newDestroy(a), newRecreate(a),
		newNuke(a), newCheck(a), newDoctor(a), newStatus(a), newGate(a), newRehearse(a), newSecrets(a),
		newOutput(a), newEnv(a), newGraph(a), newStage(a), newState(a), newTerraform(a), newVersion(a))
	return root
}

// formatsKey annotates a command whose output formats are not text and json.
const formatsKey = "formats"

// group returns a command that has only subcommands.
func group(use, short, long string, subcommands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Long: long,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(subcommands...)
	return cmd
}

// valueFlags adds the flags that set variables.
func (a *app) valueFlags(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&a.vars, "var", nil,
		"set a variable, `NAME=VALUE`; repeatable (not for secrets: other users can see it)")
	cmd.Flags().StringArrayVar(&a.varFiles, "var-file", nil,
		"read variables from `FILE`; repeatable, the last one wins")
}

// open reads the cluster's configuration.
func (a *app) open(name string, reporter cluster.Reporter) (*cluster.Cluster, error) {
	return a.openWith(cluster.Options{Cluster: name, Reporter: reporter})
}

// openWith completes o and opens the cluster that it names.
func (a *app) openWith(o cluster.Options) (*cluster.Cluster, error) {
	o, err := a.complete(o)
	if err != nil {
		return nil, err
	}
	if o.Reporter == nil {
		o.Reporter = ui.NewAnswers(a.stderr)
	}
	c, err := cluster.Open(o)
	if err != nil {
		return nil, err
	}
	a.interrupts.setCluster(c)
	return c, nil
}

// complete adds the shared flags and the embedded library to o.
func (a *app) complete(o cluster.Options) (cluster.Options, error) {
	repository, err := a.repository()
	if err != nil {
		return o, err
	}
	if repository == "" && !o.Recorded {
		_, err := config.FindRepository(a.directory)
		return o, &cluster.UsageError{Message: err.Error()}
	}
	vars := map[string]string{}
	for _, v := range a.vars {
		name, value, ok := strings.Cut(v, "=")
		if !ok {
			return o, &cluster.UsageError{Message: fmt.Sprintf("--var %s: write it as NAME=VALUE", v)}
		}
		vars[name] = value
	}
	o.Repository, o.StateDir, o.Vars, o.VarFiles = repository, a.stateDir, vars, a.varFiles
	o.Environ, o.Parallelism, o.Version = a.environ, a.parallelism, a.version
	o.Library, o.Templates = stages.Library, templates.Files
	return o, nil
}

// repository returns the castle repository that --directory lies in, "" if there is none.
func (a *app) repository() (string, error) {
	if _, err := os.Stat(a.directory); err != nil {
		return "", &cluster.UsageError{Message: "--directory: " + err.Error()}
	}
	repository, err := config.FindRepository(a.directory)
	if err != nil {
		return "", nil //nolint:nilerr // some commands need none
	}
	return repository, nil
}

// runReporter returns the reporter of a run, and a function to call after it.
func (a *app) runReporter() (cluster.Reporter, func()) {
	surviveClosedPipe()
	if a.output == "json" {
		return ui.NewJSON(a.stdout), func() {}
	}
	lines := a.progress()
	return lines, func() { lines.Timeline(a.stdout) }
}

// progress returns a reporter that writes to stderr.
func (a *app) progress() *ui.Lines {
	lines := ui.NewLines(a.stderr, isTerminal(a.stderr), a.verbose)
	a.interrupts.setLines(lines)
	return lines
}

// print writes v as JSON if -o json is given, and calls text otherwise.
func (a *app) print(v any, text func() error) error {
	if a.output != "json" {
		return text()
	}
	e := json.NewEncoder(a.stdout)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// columns returns the width of the output: that of the terminal, else 120.
func (a *app) columns() int {
	if f, ok := a.stdout.(*os.File); ok {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 2*indent {
			return width
		}
	}
	return 120
}

// localTime formats a time for people, "-" if it is zero.
func localTime(at time.Time) string {
	if at.IsZero() {
		return "-"
	}
	return at.Local().Format(time.DateTime)
}
