package talos

import (
	"errors"
	"fmt"
	"strings"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// closed is the answer of a closed gate: how far things have come, then what is
// wrong. It is permanent if one of the machines' problems is.
func closed(head string, faults []string, problems []*problem) error {
	err := errors.New(strings.Join(append([]string{head}, faults...), "; "))
	for _, p := range problems {
		if p.permanent {
			return gate.Permanent(err)
		}
	}
	return err
}

// unanswered lists the machines that gave no full answer; equal reasons share a line.
func unanswered(problems []*problem) []string {
	var reasons []string
	who := map[string][]string{}
	for _, p := range problems {
		if who[p.what] == nil {
			reasons = append(reasons, p.what)
		}
		who[p.what] = append(who[p.what], p.endpoint)
	}
	for i, reason := range reasons {
		reasons[i] = strings.Join(who[reason], ", ") + ": " + reason
	}
	return reasons
}

func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}
