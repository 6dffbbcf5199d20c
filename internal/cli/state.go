package cli

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/ephemeral-castle/castle/internal/castle"
)

func newState(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "state",
		Short: "Look at the Terraform states, and put them right",
		Long: `Look at the stages' Terraform states and the snapshots that castle takes of them
before and after every change (the newest 20 of each stage), and put them right.
Values are never shown. Works without a valid configuration.`,
		Args: usage(func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("there is no `castle state %s`", args[0])
			}
			return nil
		}),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newStateList(a), newStateShow(a), newStateRestore(a), newStateForget(a))
	return cmd
}

// states reads what the state directory holds of the cluster, and of the stage if one is named.
func (a *app) states(args []string) (*castle.Castle, []castle.StageState, error) {
	c, err := a.openAs(castle.Options{Cluster: args[0], Recorded: true})
	if err != nil {
		return nil, nil, err
	}
	name := ""
	if len(args) == 2 {
		name = args[1]
	}
	states, err := c.States(name)
	return c, states, err
}

func (a *app) clusterAndStage() cobra.PositionalArgs {
	return usage(func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) == 0:
			return errors.New("needs a cluster" + a.known())
		case len(args) > 2:
			return fmt.Errorf("needs a cluster and at most one stage, not %d", len(args)-1)
		}
		return nil
	})
}

func serial(n uint64) string {
	if n == 0 {
		return "-"
	}
	return strconv.FormatUint(n, 10)
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

func moment(at time.Time) string {
	if at.IsZero() {
		return "-"
	}
	return at.Local().Format(time.DateTime)
}
