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
	return a.typed("the cluster's name", c.Cluster().Name, what, unless, yes)
}

// typed asks for a word that names what is meant.
func (a *app) typed(word, want, what, unless string, yes bool) error {
	if yes {
		return nil
	}
	if !isTerminal(a.stdin) {
		return &unconfirmedError{"not confirmed, " + unless + "; without a terminal, say --yes"}
	}
	a.prompting(true)
	defer a.prompting(false)
	fmt.Fprintf(a.stderr, "Type %s to %s (%s): ", word, what, want)
	typed, err := bufio.NewReader(a.stdin).ReadString('\n')
	if strings.TrimSpace(typed) != want {
		return &unconfirmedError{"not confirmed, " + unless}
	}
	return err
}
