package cli

import (
	"bufio"
	"fmt"
	"strings"

	"github.com/ephemeral-castle/castle/internal/castle"
)

// agreed asks for the cluster's name before something is done that cannot simply
// be taken back; unless says what was then not done.
func (a *app) agreed(c *castle.Castle, what, unless string, yes bool) error {
	if yes {
		return nil
	}
	if !isTerminal(a.stdin) {
		return &unconfirmedError{"not confirmed, " + unless + "; without a terminal, say --yes"}
	}
	name := c.Cluster().Name
	fmt.Fprintf(a.stderr, "Type the cluster's name to %s (%s): ", what, name)
	typed, err := bufio.NewReader(a.stdin).ReadString('\n')
	if strings.TrimSpace(typed) != name {
		return &unconfirmedError{"not confirmed, " + unless}
	}
	return err
}
