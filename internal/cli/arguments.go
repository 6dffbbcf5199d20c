package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
)

// unknownCommand refuses an argument of the root command and suggests the nearest command.
func unknownCommand(root *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	text := fmt.Sprintf("unknown command %q", args[0])
	if near := root.SuggestionsFor(args[0]); len(near) > 0 {
		text += fmt.Sprintf("; did you mean %q?", near[0])
	}
	return &cluster.UsageError{Message: text + "\n  `castle --help` lists the commands"}
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
	repository, err := config.FindRepository(a.directory)
	if err != nil {
		return ""
	}
	clusters, err := config.Clusters(repository)
	if err != nil || len(clusters) == 0 {
		return ""
	}
	return "; choose one of " + strings.Join(clusters, ", ")
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
	return &cluster.UsageError{Message: fmt.Sprintf("%v\n  usage: %s", err, cmd.UseLine())}
}
