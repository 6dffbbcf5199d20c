package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/folders"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/syntax"
	"github.com/ephemeral-castle/castle/internal/tracing"
	"github.com/ephemeral-castle/castle/internal/ui"
	"github.com/ephemeral-castle/castle/stages"
	"github.com/ephemeral-castle/castle/templates"
)

// app holds the common parts of every command: streams, environment and the shared flags.
type app struct {
	version        string
	stdin          io.Reader
	stdout, stderr io.Writer // which make the texts of others visible
	values         io.Writer // stdout for values, files and colours
	commands       io.Writer // stderr for castle's own commands to a terminal or a pipeline, and for programs
	environ        []string

	directory   string
	stateDir    string
	output      string
	parallelism int
	vars        []string
	varFiles    []string
	verbose     bool
	noColour    bool
	timestamps  bool
	profile     string          // a folder
	yes         bool            // of the commands that ask
	reportFile  string          // of the commands that run an operation
	run         string          // the id of the run that has begun
	lockTimeout time.Duration   // of the commands that lock the cluster
	problems    bool            // problems of the configuration are printed as events, too
	tracer      *tracing.Tracer // nil without an OpenTelemetry endpoint

	interrupts interrupts
	summed     bool // the end of the run is printed, with its errors
}

// Command returns castle's command tree, for the documentation and its tests.
func Command() *cobra.Command { return newRoot(&app{version: "development"}) }

func newRoot(a *app) *cobra.Command {
	root := group("castle", "Create and destroy Kubernetes clusters with Terraform",
		`castle creates a Kubernetes cluster layer by layer (secrets, platform, engine,
networking, storage, gitops) with Terraform, waits at each gate until the stage is
really ready, and destroys the whole cluster again.`)
	root.SilenceUsage, root.SilenceErrors = true, true
	version := root.Flags().Bool("version", false, "print castle's version")
	root.RunE = func(cmd *cobra.Command, _ []string) error {
		if *version {
			return printVersion(a)
		}
		return cmd.Help()
	}
	f := root.PersistentFlags()
	f.StringVarP(&a.directory, "directory", "C", ".",
		"run in `DIR`; castle looks for clusters/ there and above")
	f.StringVar(&a.stateDir, "state-dir", "",
		"keep state below `DIR` (default $CASTLE_STATE_DIR, $XDG_STATE_HOME/castle or ~/.local/state/castle)")
	f.StringVarP(&a.output, "output", "o", "text", "output format: text or json")
	f.IntVar(&a.parallelism, "parallelism", 0, "limit of concurrent Terraform processes (default 4)")
	f.BoolVarP(&a.verbose, "verbose", "v", false, "show every resource and step")
	f.BoolVar(&a.noColour, "no-color", false, "print without colours, as with the variable NO_COLOR")
	f.BoolVar(&a.timestamps, "timestamps", false, "begin each line of progress with the wall clock")
	f.StringVar(&a.profile, "profile", "", "write profiles of castle itself to `DIR`")
	f.Lookup("profile").Hidden = true // for whoever works on castle
	root.SetFlagErrorFunc(unknownFlag)
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if all := formats(cmd); !slices.Contains(all, a.output) {
			return usageError(cmd, fmt.Errorf("--output %q: choose one of %s%s", a.output,
				strings.Join(all, ", "), syntax.DidYouMean(a.output, all)))
		}
		repository, _ := folders.Find(a.directory) //nolint:errcheck // what needs one reports it
		a.environ = cluster.InMemory(repository, a.stateDir, a.environ)
		if a.parallelism < 0 {
			return usageError(cmd, fmt.Errorf("--parallelism %d is negative", a.parallelism))
		}
		if a.profile != "" {
			end, err := startProfile(a.profile)
			if err != nil {
				return refuse("--profile: %v; choose a folder that castle can write", err)
			}
			a.interrupts.update(func(i *interrupts) { i.endProfile = end })
		}
		return nil
	}
	addGroup(root, "set-up", "Set up a cluster:", newInit(a), newNew(a), newImport(a), newCheck(a),
		newSecrets(a), newDoctor(a), newRehearse(a), newCI(a))
	addGroup(root, "change", "Create, change and destroy a cluster:", newPlan(a), newCreate(a), newRollout(a),
		newBackup(a), newRestore(a), newCredentials(a), newRotate(a), newDestroy(a), newRecreate(a),
		newNuke(a), newFleet(a))
	addGroup(root, "look", "Inspect a cluster:", newList(a), newChanged(a), newStatus(a), newGate(a),
		newGraph(a), newOutput(a), newEnv(a), newOutdated(a))
	addGroup(root, "runs", "Inspect runs:", newLogs(a), newHistory(a), newReport(a))
	addGroup(root, "administer", "Administer stages, states and providers:", newStage(a), newState(a),
		newProviders(a), newTerraform(a), newUnlock(a))
	addGroup(root, "castle", "castle itself:", newCompletion(a), newHelp(), newVersion(a))
	root.AddCommand(newEnvironmentTopic(), newExitCodesTopic())
	completer{a}.add(root)
	return root
}

// addGroup adds commands under a title of the help.
func addGroup(root *cobra.Command, id, title string, commands ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: id, Title: title})
	for _, cmd := range commands {
		cmd.GroupID = id
		if cmd.Name() == "help" {
			root.SetHelpCommand(cmd)
		}
		root.AddCommand(cmd)
	}
}

// formatsKey annotates a command whose output formats are not text and json.
const formatsKey = "formats"

// formats returns the output formats of a command.
func formats(cmd *cobra.Command) []string {
	return strings.Fields(cmp.Or(cmd.Annotations[formatsKey], "text json"))
}

// group returns a command that has only subcommands.
func group(use, short, long string, subcommands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Long: long,
		Args: unknownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(subcommands...)
	return cmd
}

// valueFlags adds the flags that set variables, and returns cmd.
func (a *app) valueFlags(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().StringArrayVar(&a.vars, "var", nil,
		"set a variable, `NAME=VALUE`; repeatable (not for secrets: other users can see it)")
	cmd.Flags().StringArrayVar(&a.varFiles, "var-file", nil,
		"read variables from `FILE`; repeatable, the last one wins")
	return cmd
}

type (
	runE func(cmd *cobra.Command, args []string) error
	// action is the work of a command with its cluster and the arguments that follow its name.
	action func(ctx context.Context, c *cluster.Cluster, args []string) error
)

// onCluster returns a runE that opens the cluster named by the first argument. A nil reporter prints only
// the answers to interrupts.
func (a *app) onCluster(reporter func() cluster.Reporter, do action) runE {
	return a.opening(cluster.Options{}, reporter, do)
}

// onRecorded is onCluster for a command that works from the records.
func (a *app) onRecorded(reporter func() cluster.Reporter, do action) runE {
	return a.opening(cluster.Options{Recorded: true}, reporter, do)
}

// onPlace returns a runE for a command about the place of the state, which may not be the configured one.
func onPlace(a *app, do func(ctx context.Context, c *cluster.Cluster) error) runE {
	return a.opening(cluster.Options{Recorded: true, AnyPlace: true}, nil,
		func(ctx context.Context, c *cluster.Cluster, _ []string) error { return do(ctx, c) })
}

func (a *app) opening(o cluster.Options, reporter func() cluster.Reporter, do action) runE {
	return func(cmd *cobra.Command, args []string) error {
		o.Cluster = args[0]
		if reporter != nil {
			startTracing(cmd.Context(), a)
			o.Reporter = traced(a, reporter())
		}
		return a.untilUnlocked(cmd.Context(), func() error {
			c, err := a.open(cmd.Context(), o)
			if err != nil {
				return err
			}
			if lines := a.interrupts.lines; lines != nil && display(a).View {
				lines.Learn(usual(c.Dir))
			}
			return errors.Join(do(cmd.Context(), c, args[1:]), c.Store.Close())
		})
	}
}

// lockFlag adds the flag of a command that may wait for the cluster's lock.
func (a *app) lockFlag(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&a.lockTimeout, "lock-timeout", 0,
		"wait so long while another run holds the cluster's lock; `DURATION` such as 30m")
}

// runFlags adds the flags of a command that changes the cluster in a run, and returns cmd.
func (a *app) runFlags(cmd *cobra.Command) *cobra.Command {
	a.lockFlag(cmd)
	reportFlag(a, cmd)
	return cmd
}

// lockInterval is how long castle waits before it tries again to take a lock.
const lockInterval = 2 * time.Second

// untilUnlocked repeats an attempt while another run holds the cluster's lock, until the time of
// --lock-timeout has passed. Such an attempt has changed nothing.
func (a *app) untilUnlocked(ctx context.Context, attempt func() error) error {
	end := time.Now().Add(a.lockTimeout)
	for waiting := false; ; waiting = true {
		err := attempt()
		if !is[*state.HeldError](err) || time.Now().Add(lockInterval).After(end) {
			return err
		}
		if !waiting {
			a.interrupts.say(fmt.Sprintf("castle: %v\ncastle: waiting for the lock until %s", err,
				localTime(end)))
		}
		select {
		case <-time.After(lockInterval):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// open completes o and opens the cluster that it names.
func (a *app) open(ctx context.Context, o cluster.Options) (*cluster.Cluster, error) {
	o, err := a.complete(o)
	if err != nil {
		return nil, err
	}
	if o.Reporter == nil {
		o.Reporter = ui.Answers{W: a.stderr}
	}
	c, err := cluster.Open(ctx, o)
	if err == nil {
		for _, text := range c.Notices {
			fmt.Fprintln(a.stderr, "castle:", text)
		}
		a.interrupts.update(func(i *interrupts) { i.cluster = c })
	}
	return c, err
}

// complete adds the shared flags and the embedded library to o. Only Recorded needs no repository.
func (a *app) complete(o cluster.Options) (cluster.Options, error) {
	if _, err := os.Stat(a.directory); err != nil {
		return o, refuse("--directory: %v", err)
	}
	repository, err := folders.Find(a.directory)
	if err != nil && !o.Recorded {
		return o, refuse("%v", err)
	}
	o.Repository, o.StateDir, o.Vars, o.VarFiles = repository, a.stateDir, map[string]string{}, a.varFiles
	o.Environ, o.Parallelism, o.Version = a.environ, a.parallelism, a.version
	o.CommandLine = a.interrupts.command
	if a.tracer != nil {
		o.OnCommand = a.tracer.Command
	}
	o.Library, o.Templates = stages.Library, templates.Files
	o.Environ = o.ProgramEnviron()
	o.Ending = func(err error) event.Ending { return ending(err, a.interrupts.command) }
	return o, setPairs(o.Vars, "--var %s: write it as NAME=VALUE", a.vars)
}

// setPairs adds pairs NAME=VALUE to values; problem is the message for anything else.
func setPairs(values map[string]string, problem string, pairs []string) error {
	for _, pair := range pairs {
		name, value, ok := strings.Cut(pair, "=")
		if !ok {
			return refuse(problem, pair)
		}
		values[name] = value
	}
	return nil
}

// runReporter returns the reporter of a run that changes the cluster.
func (a *app) runReporter() cluster.Reporter {
	surviveClosedPipe()
	if a.output == "json" {
		a.problems = true
		return &runWatch{app: a, next: ui.NewJSON(a.stdout)}
	}
	return &runWatch{app: a, next: a.progress(), pipeline: findPipeline(a)}
}

// progress returns a reporter that writes to stderr.
func (a *app) progress() cluster.Reporter { return a.progressAs(display(a)) }

func (a *app) progressAs(how ui.Options) cluster.Reporter {
	lines := ui.NewLines(a.commands, how)
	a.interrupts.update(func(i *interrupts) { i.lines = lines })
	return lines
}

// timeline prints the timeline of a run and how it ended, unless its events are printed as JSON.
func (a *app) timeline() {
	if a.output != "json" {
		a.interrupts.lines.Timeline(a.stdout)
		a.summed = a.interrupts.lines.Summary()
	}
}

// print writes v as JSON if -o json is given, else the text that write writes; its tabs align columns.
func (a *app) print(v any, write func(w io.Writer)) error {
	if a.output != "json" {
		return printTable(a.stdout, write)
	}
	e := json.NewEncoder(a.stdout)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// printTable writes the text that write writes; its tabs align columns.
func printTable(w io.Writer, write func(w io.Writer)) error {
	var text strings.Builder
	t := ui.NewTable(&text)
	write(t)
	err := t.Flush()
	if err == nil {
		_, err = io.WriteString(w, text.String())
	}
	return err
}

// localTime formats a time for people, "-" if it is zero.
func localTime(at time.Time) string {
	if at.IsZero() {
		return "-"
	}
	return at.Local().Format(time.DateTime)
}

// oneCluster accepts the name of a cluster and nothing else.
func (a *app) oneCluster() cobra.PositionalArgs { return a.cluster(cobra.ExactArgs(1)) }

// cluster requires a cluster, which check may follow by more. Without one it lists the clusters.
func (a *app) cluster(check cobra.PositionalArgs) cobra.PositionalArgs {
	return usage(func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return errors.New("no cluster given" + a.clusters())
		}
		return check(cmd, args)
	})
}

// optionalCluster accepts at most one cluster. The flags for values require it.
func (a *app) optionalCluster() cobra.PositionalArgs {
	return usage(cobra.MatchAll(cobra.MaximumNArgs(1), func(_ *cobra.Command, args []string) error {
		if len(args) == 0 && len(a.vars)+len(a.varFiles) > 0 {
			return errors.New("--var and --var-file require a cluster" + a.clusters())
		}
		return nil
	}))
}

// clusters lists the repository's clusters for an error message.
func (a *app) clusters() string {
	repository, err := folders.Find(a.directory)
	if err != nil {
		return ""
	}
	clusters, err := folders.Clusters(repository)
	if err == nil && len(clusters) == 0 {
		return "; there is none: `castle new CLUSTER` generates one"
	}
	return listIf("; choose one of ", clusters)
}

// usage makes an argument error a *castle.UsageError that shows the command's usage.
func usage(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return usageError(cmd, err)
		}
		return nil
	}
}

func usageError(cmd *cobra.Command, err error) error {
	return refuse("%v\n  usage: %s", err, cmd.UseLine())
}

// refuse returns a *cluster.UsageError.
func refuse(format string, args ...any) error {
	return &cluster.UsageError{Message: fmt.Sprintf(format, args...)}
}
