package cli

import (
	"bufio"
	"context"
	"fmt"
	"strings"
	"sync"

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

// agreeing returns how the user is asked whether a stage may replace or destroy
// something while a run goes on. Whoever has no terminal cannot agree.
func (a *app) agreeing() func(context.Context, castle.Loss) (bool, error) {
	if !isTerminal(a.stdin) {
		return func(context.Context, castle.Loss) (bool, error) { return false, nil }
	}
	answers := make(chan string)
	read := sync.OnceFunc(func() { // one reader for all questions: it may have read ahead
		go func() {
			defer close(answers)
			for lines := bufio.NewScanner(a.stdin); lines.Scan(); {
				answers <- strings.TrimSpace(lines.Text())
			}
		}()
	})
	return func(ctx context.Context, loss castle.Loss) (bool, error) {
		var text strings.Builder
		fmt.Fprintf(&text, "%s/%s is to lose what exists:\n", loss.Layer, loss.Stage)
		for _, c := range loss.Changes {
			fmt.Fprintf(&text, "  %s\n", c)
		}
		a.say(text.String() + "Type yes to replace and destroy that: ")
		read()
		select {
		case answer := <-answers:
			return answer == "yes", nil
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
}
