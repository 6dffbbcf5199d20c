package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ephemeral-castle/castle/internal/castle"
	"github.com/ephemeral-castle/castle/internal/config"
)

// unknownCommand refuses what is no command, and names the nearest one.
func unknownCommand(root *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	text := fmt.Sprintf("unknown command %q", args[0])
	if near := root.SuggestionsFor(args[0]); len(near) > 0 {
		text += fmt.Sprintf("; did you mean %q?", near[0])
	}
	return &castle.UsageError{Message: text + "\n  `castle --help` lists the commands"}
}

// oneCluster asks for a cluster's name and nothing else.
func (a *app) oneCluster() cobra.PositionalArgs {
	return usage(func(_ *cobra.Command, args []string) error {
		switch len(args) {
		case 0:
			return errors.New("needs a cluster" + a.known())
		case 1:
			return nil
		}
		return fmt.Errorf("needs one cluster, not %d", len(args))
	})
}

// known lists the clusters that there are, for somebody who has named none.
func (a *app) known() string {
	repository, err := config.FindRepository(a.directory)
	if err != nil {
		return ""
	}
	clusters, err := config.Clusters(repository)
	if err != nil || len(clusters) == 0 {
		return ""
	}
	return "; there are " + strings.Join(clusters, ", ")
}

// usage makes what is wrong with flags and arguments a *castle.UsageError, and
// shows how the command is used.
func usage(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return usageError(cmd, err)
		}
		return nil
	}
}

func usageError(cmd *cobra.Command, err error) error {
	return &castle.UsageError{Message: fmt.Sprintf("%v\n  usage: %s", err, cmd.UseLine())}
}
