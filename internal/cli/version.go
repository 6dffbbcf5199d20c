package cli

import (
	"fmt"
	"io"
	"runtime"

	"github.com/spf13/cobra"
)

func newVersion(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print castle's version",
		Long:    "Print the versions of castle and of its Go. `castle --version` does the same.",
		Example: "  castle version\n  castle version -o json",
		Args:    usage(cobra.NoArgs),
		RunE:    func(*cobra.Command, []string) error { return printVersion(a) },
	}
}

func printVersion(a *app) error {
	v := map[string]string{"version": a.version, "go": runtime.Version()}
	return a.print(v, func(w io.Writer) { fmt.Fprintf(w, "castle %s (%s)\n", a.version, runtime.Version()) })
}
