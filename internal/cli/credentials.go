package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/operation/status"
	"github.com/ephemeral-castle/castle/internal/run/expiry"
)

func showCertificates(a *app) action {
	return func(ctx context.Context, c *cluster.Cluster, _ []string) error {
		all, err := status.Certificates(ctx, c)
		if err != nil {
			return err
		}
		return a.print(all, func(w io.Writer) { printCertificates(w, all.Certificates) })
	}
}

// printCertificates prints a row for each credential: its name, when it expires, and what renews it.
func printCertificates(w io.Writer, items []expiry.Item) {
	if len(items) == 0 {
		fmt.Fprintln(w, "nothing is created that expires")
	}
	width := 0
	for _, i := range items {
		width = max(width, len(i.Name))
	}
	for _, i := range items {
		when := map[string]string{expiry.Never: "never expires", expiry.NotChecked: "not checked"}[i.State]
		if when == "" {
			when = fmt.Sprintf("%s, in %.0f days", i.Expires.UTC().Format(time.DateOnly),
				time.Until(i.Expires).Hours()/24)
		}
		if i.State == expiry.Expired {
			when = i.Expires.UTC().Format(time.DateOnly) + ", expired"
		}
		more := cmp.Or(i.Reason, textIf(i.Note != "", i.Note+"; ")+i.Fix)
		fmt.Fprintln(w, strings.TrimRight(fmt.Sprintf("%-*s  %-24s  %s", width, i.Name, when, more), " "))
	}
}
