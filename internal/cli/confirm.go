package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/run/review"
)

// confirmCluster asks the user to type the cluster's name before an action that is hard to undo. otherwise
// describes the action that castle did not take.
func confirmCluster(a *app, c *cluster.Cluster, action, otherwise string) error {
	return confirm(a, "the cluster's name", c.Config.Name, action, otherwise)
}

// confirm asks the user to type want, which word describes.
func confirm(a *app, word, want, action, otherwise string) error {
	if a.yes {
		return nil
	}
	if !isTerminal(a.stdin) {
		return &unconfirmedError{"not confirmed, " + otherwise + "; without a terminal, pass --yes"}
	}
	typed, err := a.prompt(fmt.Sprintf("Type %s to %s (%s): ", word, action, want))
	if typed != want {
		return &unconfirmedError{"not confirmed, " + otherwise}
	}
	return err
}

// prompt asks the user for one line.
func (a *app) prompt(question string) (string, error) {
	defer a.interrupts.prompt()()
	fmt.Fprint(a.stderr, question)
	typed, err := bufio.NewReader(a.stdin).ReadString('\n')
	if errors.Is(err, io.EOF) {
		fmt.Fprintln(a.stderr)
		err = errors.New("no answer")
	}
	return strings.TrimSpace(typed), err
}

// confirmLoss returns how a run asks whether a stage may replace or destroy resources.
// Without a terminal the answer is no.
func confirmLoss(a *app) func(context.Context, review.Loss) (bool, error) {
	if !isTerminal(a.stdin) {
		return func(context.Context, review.Loss) (bool, error) { return false, nil }
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
	return func(ctx context.Context, loss review.Loss) (bool, error) {
		var text strings.Builder
		fmt.Fprintf(&text, "%s/%s: the plan replaces or destroys existing resources:\n", loss.Layer,
			loss.Stage)
		for _, c := range loss.Changes {
			fmt.Fprintf(&text, "  %s\n", c)
		}
		a.interrupts.say(text.String() + "Type yes to replace and destroy them: ")
		read()
		select {
		case answer := <-answers:
			return answer == "yes", nil
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
}
