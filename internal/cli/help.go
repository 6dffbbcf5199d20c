package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ephemeral-castle/castle/internal/syntax"
)

func newHelp() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND|TOPIC…]",
		Short: "Show the help of a command or topic",
		Long: `Show the help of a command, as --help does, or of a topic: environment or exit-codes.
Without an argument, list the commands.`,
		Example: `  castle help create
  castle help state restore
  castle help exit-codes`,
		ValidArgsFunction: func(cmd *cobra.Command, args []string, word string) (
			[]string, cobra.ShellCompDirective) {
			var names []string
			if of, rest, err := cmd.Root().Find(args); err == nil && len(rest) == 0 {
				for _, sub := range of.Commands() {
					if !sub.Hidden {
						names = append(names, sub.Name()+"\t"+sub.Short)
					}
				}
			}
			return offer(word, names)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			of, rest, err := cmd.Root().Find(args)
			if err != nil {
				return refuse("%v", err)
			}
			if len(rest) > 0 && !of.HasSubCommands() {
				return refuse("%s has no subcommands; %q is none", of.CommandPath(), rest[0])
			}
			if err := unknownCommand(of, rest); err != nil {
				return err
			}
			of.InitDefaultHelpFlag()
			return of.Help()
		},
	}
}

// unknownCommand refuses an argument of a command that has subcommands, and suggests the nearest of them.
func unknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	where := textIf(cmd.HasParent(), " of "+cmd.CommandPath())
	return refuse("unknown command %q%s%s\n  `%s --help` lists the commands", args[0], where,
		nearest(cmd, args[0]), cmd.CommandPath())
}

// nearest suggests a subcommand for a word: one that other programs call so, or nearestName.
func nearest(cmd *cobra.Command, word string) string {
	var names []string
	for _, sub := range cmd.Commands() {
		if slices.Contains(sub.SuggestFor, strings.ToLower(word)) {
			return didYouMean(sub.Name())
		}
		if !sub.Hidden {
			names = append(names, sub.Name())
		}
	}
	return nearestName(word, names)
}

// nearestName suggests the only name that begins with a word, or the one that is spelled alike.
func nearestName(word string, names []string) string {
	others := func(name string) bool { return !strings.HasPrefix(name, word) }
	if begin := slices.DeleteFunc(slices.Clone(names), others); len(begin) == 1 {
		return didYouMean(begin[0])
	}
	return syntax.DidYouMean(word, names)
}

func didYouMean(name string) string { return fmt.Sprintf("; did you mean %q?", name) }

// unknownFlag adds the nearest flag to an error about a flag that the command does not have.
func unknownFlag(cmd *cobra.Command, err error) error {
	unknown, is := errors.AsType[*pflag.NotExistError](err)
	if !is || len(unknown.GetSpecifiedName()) < 2 {
		return usageError(cmd, err)
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, "--"+f.Name)
		}
	})
	return usageError(cmd, fmt.Errorf("%w%s", err, nearestName("--"+unknown.GetSpecifiedName(), names)))
}

func newExitCodesTopic() *cobra.Command {
	var text strings.Builder
	for _, e := range ExitCodes() {
		fmt.Fprintf(&text, "  %3d  %s\n", e.Code, e.Meaning)
	}
	return &cobra.Command{
		Use:   "exit-codes",
		Short: "The exit codes of every command",
		Long: "castle ends every command with one of these exit codes:\n\n" + text.String() + `
castle rehearse and castle terraform pass on the exit code of the program that they run.`,
	}
}

// Variable is a variable of the environment that castle reads or sets.
type Variable struct{ Name, Meaning string }

// Variables returns the variables of the environment that castle itself reads, in groups with titles.
func Variables() []VariableGroup {
	return []VariableGroup{
		{"State", []Variable{
			{"CASTLE_STATE_DIR", "the state directory; --state-dir overrides it"},
			{"XDG_STATE_HOME", "holds the state directory castle if CASTLE_STATE_DIR is not set"},
			{"XDG_RUNTIME_DIR", "holds it if castle.hcl keeps working copies in memory; else /dev/shm does"},
			{"CASTLE_STATE_STORE", "the URL of the store, instead of that in castle.hcl; local uses none"},
			{"CASTLE_STATE_LOCK_TIME", "how long a lock in the store lasts without renewal, such as 5m"},
			{"CASTLE_STATE_AT_LEAST", "the number of a commit: castle refuses a log that ends before it"},
			{"CASTLE_AGE_IDENTITY", "the identity of age that decrypts the content of the store, and plans"},
			{"CASTLE_AGE_IDENTITY_FILE", "the file that holds this identity, with mode 0600"},
		}},
		{"Values and credentials", []Variable{
			{"TF_VAR_NAME", "the value of the variable NAME, above cluster.hcl and below --var"},
			{"PROXMOX_VE_API_TOKEN", "the API token of Proxmox, for castle nuke and rotated tokens"},
			{"PROXMOX_VE_ENDPOINT", "the address of Proxmox' API, likewise"},
			{"PROXMOX_VE_INSECURE", "true: accept any certificate of Proxmox"},
			{"HCLOUD_TOKEN", "the API token of Hetzner Cloud, for tokens that were rotated"},
			{"HCLOUD_ENDPOINT", "the address of its API, likewise"},
			{"INFISICAL_HOST", "the address of Infisical"},
			{"INFISICAL_UNIVERSAL_AUTH_CLIENT_ID", "the machine identity that castle uses at Infisical"},
			{"INFISICAL_UNIVERSAL_AUTH_CLIENT_SECRET", "its secret"},
			{"VAULT_ADDR", "the address of Vault"},
			{"VAULT_TOKEN", "the token that castle uses at Vault"},
			{"VAULT_CACERT", "the file with the CA of Vault's certificate"},
		}},
		{"Terraform", []Variable{
			{"PATH", "castle runs the first terraform there; without one it installs its own"},
			{"CASTLE_TERRAFORM", "terraform or tofu, the program that runs the stages; overrides castle.hcl"},
			{"TF_CLI_CONFIG_FILE", "Terraform's own settings, such as a mirror of providers"},
			{"CASTLE_WARM_PROVIDERS", "0 or false: Terraform starts the providers for each command"},
			{"CASTLE_RUN", "castle sets it for Terraform and providers: the id of the run"},
		}},
		{"Terminal", []Variable{
			{"NO_COLOR", "print without colours, as with --no-color"},
			{"TERM", "dumb or none: print lines, and no view that redraws itself"},
			{"LC_ALL", "a locale without UTF-8: the view is plain ASCII; else LC_CTYPE, else LANG"},
		}},
		{"Pipelines, traces and rehearsals", []Variable{
			{"GITHUB_ACTIONS", "true: castle writes sections, annotations, the summary and outputs of a job"},
			{"GITLAB_CI", "true: castle writes sections and castle-junit.xml below CI_PROJECT_DIR"},
			{"OTEL_EXPORTER_OTLP_ENDPOINT", "the OpenTelemetry collector that gets traces of the runs"},
			{"TRACEPARENT", "the span to which the trace of a run belongs"},
			{"CASTLE_LAB_REPOSITORY", "a rehearsal sets it for its command: the copy of the repository"},
		}},
	}
}

// VariableGroup is a group of variables under a title.
type VariableGroup struct {
	Title     string
	Variables []Variable
}

func newEnvironmentTopic() *cobra.Command {
	var text strings.Builder
	for _, group := range Variables() {
		fmt.Fprintf(&text, "\n%s:\n", group.Title)
		for _, v := range group.Variables {
			fmt.Fprintf(&text, "  %-38s  %s\n", v.Name, v.Meaning)
		}
	}
	return &cobra.Command{
		Use:   "environment",
		Short: "The variables of the environment that castle reads",
		Long: "castle reads these variables of the environment. Terraform and its providers also get " +
			"proxies,\ntheir own credentials and SSL_CERT_*, and never KUBE*.\n" +
			strings.TrimRight(text.String(), "\n"),
	}
}
