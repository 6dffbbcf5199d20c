package cli

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/siderolabs/gen/xslices"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/fault"
	"github.com/ephemeral-castle/castle/internal/folders"
	"github.com/ephemeral-castle/castle/internal/foreign"
	"github.com/ephemeral-castle/castle/internal/naming"
	"github.com/ephemeral-castle/castle/internal/outline"
	"github.com/ephemeral-castle/castle/internal/report"
	"github.com/ephemeral-castle/castle/internal/scaffold"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/templates"
)

func newCompletion(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "completion bash|zsh|fish",
		Short: "Print the script that lets a shell complete castle's commands",
		Long: `Print a script for bash, zsh or fish. With it, the Tab key completes commands, flags, clusters,
stages and layers, stages of the library, outputs, runs, faults, formats and files.

castle completes from files alone: the configuration, also from a subfolder of the repository
or with -C, and the state directory. It contacts no system and no store, and writes nothing.
bash needs the package bash-completion. zsh needs fpath+=~/.zfunc before compinit in .zshrc.`,
		Example: `  source <(castle completion bash)
  castle completion bash > ~/.local/share/bash-completion/completions/castle
  castle completion zsh > ~/.zfunc/_castle
  castle completion fish > ~/.config/fish/completions/castle.fish`,
		Args: usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch root := cmd.Root(); args[0] {
			case "bash":
				return root.GenBashCompletionV2(a.values, true)
			case "zsh":
				return root.GenZshCompletion(a.values)
			case "fish":
				return root.GenFishCompletion(a.values, true)
			}
			return usageError(cmd, fmt.Errorf("no completion for %q; choose one of bash, zsh, fish%s",
				args[0], nearestName(args[0], []string{"bash", "zsh", "fish"})))
		},
	}
}

// completer completes arguments and flags by their placeholders in usage lines. It reads files, contacts
// nothing, writes nothing, and offers nothing where a file cannot be read.
type completer struct{ app *app }

// add gives a command and its subcommands their completion.
func (c completer) add(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		c.add(sub)
	}
	if cmd.ValidArgsFunction == nil && !cmd.HasSubCommands() {
		cmd.ValidArgsFunction = c.arguments
	}
	flags := func(f *pflag.Flag) {
		if f.NoOptDefVal == "" {
			// It fails only for a flag that has a completion.
			_ = cmd.RegisterFlagCompletionFunc(f.Name, func(cmd *cobra.Command, args []string, word string) (
				[]string, cobra.ShellCompDirective) {
				return c.flag(cmd, f, args, word)
			})
		}
	}
	cmd.Flags().VisitAll(flags)
	cmd.PersistentFlags().VisitAll(flags)
}

// placeholders returns the placeholders of a command's arguments: CLUSTER and STAGE|LAYER of
// "gate CLUSTER [STAGE|LAYER]". The last one repeats if it ends with an ellipsis.
func placeholders(cmd *cobra.Command) []string {
	var all []string
	for _, word := range strings.Fields(cmd.Use)[1:] {
		if word = strings.Trim(word, "[]"); strings.HasPrefix(word, "--") && word != "--" {
			return all // a required flag
		} else if word != "--" {
			all = append(all, word)
		}
	}
	return all
}

// arguments completes the argument after args.
func (c completer) arguments(cmd *cobra.Command, args []string, word string) (
	[]string, cobra.ShellCompDirective) {
	all := placeholders(cmd)
	at := len(args)
	if n := len(all); n > 0 && at >= n && strings.HasSuffix(all[n-1], "…") {
		at = n - 1
	}
	if at >= len(all) {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	switch kind := strings.TrimSuffix(all[at], "…"); kind {
	case "CLUSTER":
		return offer(word, c.clusters(cmd, word))
	case "STAGE", "STAGE|LAYER":
		return offer(word, c.stages(args[0], kind != "STAGE"))
	case "LAYER/STAGE":
		return offer(word, c.sources())
	case "FILE":
		return offer(word, c.stageFiles(args[0]))
	case "NAME":
		return offer(word, c.outputs(args[0]))
	case "DIR":
		return nil, cobra.ShellCompDirectiveFilterDirs
	case "COMMAND", "ARGS": // of another program, after --
		if cmd.ArgsLenAtDash() >= 0 {
			return nil, cobra.ShellCompDirectiveDefault
		}
	default:
		if kind == strings.ToLower(kind) { // github|gitlab
			return offer(word, strings.Split(kind, "|"))
		}
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}

// flag completes the value of a flag.
func (c completer) flag(cmd *cobra.Command, f *pflag.Flag, args []string, word string) (
	[]string, cobra.ShellCompDirective) {
	of := ""
	if len(args) > 0 {
		of = args[0]
	}
	switch f.Name {
	case "output":
		return offer(word, formats(cmd))
	case "format":
		return offer(word, report.Formats())
	case "fault":
		return faults(word), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	case "providers":
		return offer(word, []string{"stand-in", "registry"})
	case "speed":
		return offer(word, []string{"fast", "1"})
	case "template":
		return offer(word, scaffold.Templates(c.repository(), templates.Files))
	case "set":
		return answerKeys(word), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	case "snapshot":
		return offer(word, []string{"newest"})
	case "run":
		return offer(word, c.runs(of))
	}
	switch placeholder, _ := pflag.UnquoteUsage(f); placeholder {
	case "STAGE or layer":
		return offer(word, c.stages(of, true))
	case "STAGES or layers":
		last := strings.LastIndex(word, ",") + 1
		names, directive := offer(word[last:], c.stages(of, true))
		for i, name := range names {
			names[i] = word[:last] + name
		}
		return names, directive
	case "CLUSTER":
		return offer(word, c.clusters(cmd, word))
	case "SYSTEM":
		return offer(word, xslices.Map(scaffold.PipelineSystems(),
			func(s scaffold.PipelineSystem) string { return s.Name + "\t" + s.Title }))
	case "PLATFORM":
		return offer(word, strings.Split(strings.Trim(f.DefValue, "[]"), ","))
	case "DIR":
		return nil, cobra.ShellCompDirectiveFilterDirs
	case "FILE", "FILE.castleplan":
		return nil, cobra.ShellCompDirectiveDefault
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}

// offer returns what begins with a word, and nothing that a terminal would obey. A description follows a tab.
func offer(word string, all []string) ([]string, cobra.ShellCompDirective) {
	others := func(s string) bool {
		return !strings.HasPrefix(s, word) || strings.Contains(s, "\n") || foreign.Text(s) != s
	}
	return slices.DeleteFunc(slices.Clone(all), others), cobra.ShellCompDirectiveNoFileComp
}

// repository returns the repository that castle runs in, "" if there is none.
func (c completer) repository() string {
	repository, _ := folders.Find(c.app.directory) //nolint:errcheck // "" then
	return repository
}

// configured returns the clusters of the repository.
func (c completer) configured() []string {
	repository := c.repository()
	if repository == "" {
		return nil
	}
	all, _ := folders.Clusters(repository) //nolint:errcheck // none then
	return all
}

// recorded returns the clusters that have a state directory on this machine, and the folder of all.
func (c completer) recorded() (all []string, root string) {
	root, err := state.Root(c.app.stateDir, c.app.environ)
	if err == nil {
		all, _ = state.Clusters(root) //nolint:errcheck // none then
	}
	return all, root
}

// clusters returns the clusters that a command can work on: blue, or blue/proxmox where the name alone is
// ambiguous or the user types the platform.
func (c completer) clusters(cmd *cobra.Command, word string) []string {
	all := c.configured()
	if worksOnRecords(cmd) {
		recorded, _ := c.recorded()
		all = append(all, recorded...)
		slices.Sort(all)
		all = slices.Compact(all)
	}
	if strings.Contains(word, "/") {
		return all
	}
	platforms := map[string]int{}
	for _, name := range all {
		platforms[path.Dir(name)]++
	}
	for i, name := range all {
		if short := path.Dir(name); platforms[short] == 1 {
			all[i] = short + "\t" + path.Base(name)
		}
	}
	return all
}

// worksOnRecords reports whether a command also works on a cluster that is not configured any more.
func worksOnRecords(cmd *cobra.Command) bool {
	return cmd.Parent().Name() == "state" ||
		slices.Contains([]string{"destroy", "history", "logs", "nuke", "report", "unlock"}, cmd.Name())
}

// named returns the clusters that a reference means: blue, or blue/proxmox.
func named(all []string, reference string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(name string) bool {
		return name != reference && path.Dir(name) != reference
	})
}

// stages returns the stages of a cluster that are configured or recorded, with their layers on request.
func (c completer) stages(reference string, layers bool) []string {
	var names, used []string
	for _, name := range named(c.configured(), reference) {
		file, _ := outline.Read(c.repository(), name) //nolint:errcheck // none then
		for _, s := range file.Enabled() {
			if !naming.Suits(s.Name) {
				continue
			}
			names = append(names, s.Name+"\t"+s.Source)
			used = append(used, s.Layer())
		}
	}
	recorded, root := c.recorded()
	for _, name := range named(recorded, reference) {
		stages, _ := state.Recorded(root, name)
		for _, stage := range stages {
			known := func(s string) bool { return strings.HasPrefix(s, stage+"\t") }
			if !slices.ContainsFunc(names, known) {
				names = append(names, stage+"\trecorded")
			}
		}
	}
	unknown := len(names) == 0
	for _, layer := range config.Layers() {
		if layers && (unknown || slices.Contains(used, layer)) {
			names = append(names, layer+"\tlayer")
		}
	}
	return names
}

// sources returns the stages of the library.
func (c completer) sources() []string {
	o, _ := c.app.complete(cluster.Options{Recorded: true}) //nolint:errcheck // the built-in ones then
	return config.Sources(o.Config())
}

func (c completer) stageFiles(source string) []string {
	if s, err := c.app.libraryStage(source); err == nil {
		return s.Files
	}
	return nil
}

// outputs returns the outputs of the stages of a cluster.
func (c completer) outputs(reference string) (names []string) {
	library, err := c.app.library()
	if err != nil {
		return nil
	}
	for _, name := range named(c.configured(), reference) {
		file, _ := outline.Read(c.repository(), name) //nolint:errcheck // none then
		for _, s := range library {
			is := func(l outline.Stage) bool { return l.Source == s.Source }
			if slices.ContainsFunc(file.Enabled(), is) {
				for _, o := range s.Outputs {
					names = append(names, o.Name+"\t"+s.Layer)
				}
			}
		}
	}
	return names
}

// runs returns the ids of a cluster's runs on this machine, the newest first.
func (c completer) runs(reference string) (ids []string) {
	recorded, root := c.recorded()
	for _, name := range named(recorded, reference) {
		_, runs := state.Recorded(root, name)
		ids = append(ids, runs...)
	}
	return ids
}

// faults completes NAME=, and a value that is always the same.
func faults(word string) []string {
	var all []string
	for _, f := range fault.All() {
		text := f.Name + "=" + textIf(f.Value == fault.Yes, f.Value)
		all = append(all, fmt.Sprintf("%s\t%s: %s", text, f.Value, f.Summary))
	}
	all, _ = offer(word, all)
	return all
}

// answerKeys completes KEY= of the answers for castle new.
func answerKeys(word string) []string {
	var all []string
	for line := range strings.Lines(scaffold.Usage()) {
		name, question, _ := strings.Cut(strings.TrimSpace(line), " ")
		all = append(all, name+"=\t"+strings.TrimSpace(question))
	}
	all, _ = offer(word, all)
	return all
}
