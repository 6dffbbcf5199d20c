package cli

import (
	"fmt"
	"io"
	"runtime"

	"github.com/spf13/cobra"
)

func newVersion(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print castle's version",
		Args:  usage(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			v := map[string]string{"version": a.version, "go": runtime.Version()}
			return a.print(v, func(w io.Writer) { fmt.Fprintf(w, "castle %s (%s)\n", v["version"], v["go"]) })
		},
	}
}
