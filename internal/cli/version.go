package cli

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
)

func newVersion(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print castle's version",
		Args:  usage(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			return a.print(map[string]string{"version": a.version, "go": runtime.Version()}, func() error {
				_, err := fmt.Fprintf(a.stdout, "castle %s (%s)\n", a.version, runtime.Version())
				return err
			})
		},
	}
}
