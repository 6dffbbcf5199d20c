package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/ephemeral-castle/castle/internal/castle"
	"github.com/ephemeral-castle/castle/internal/scaffold"
)

// questions asks the user one thing after the other.
type questions struct {
	app   *app
	lines *bufio.Reader
}

func (a *app) questions() *questions { return &questions{a, bufio.NewReader(a.stdin)} }

// ask asks for one answer until it suits. An empty line takes what is proposed.
func (q *questions) ask(order *scaffold.Order, k *scaffold.Key, proposal string) error {
	q.app.prompting(true)
	defer q.app.prompting(false)
	for {
		fmt.Fprint(q.app.stderr, k.Asks)
		if proposal != "" {
			fmt.Fprintf(q.app.stderr, " [%s]", proposal)
		}
		fmt.Fprint(q.app.stderr, ": ")
		typed, err := q.lines.ReadString('\n')
		if errors.Is(err, io.EOF) {
			fmt.Fprintln(q.app.stderr)
			return &castle.UsageError{Message: "no answer; nothing was made"}
		}
		if err != nil {
			return err
		}
		text := strings.TrimSpace(typed)
		if text == "" {
			text = proposal
		}
		err = order.Answer(k, text)
		if err == nil {
			return nil
		}
		fmt.Fprintf(q.app.stderr, "  %s\n", err)
	}
}
