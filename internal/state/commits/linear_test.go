package commits

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/ephemeral-castle/castle/internal/state/commits/commitstest"
	"github.com/ephemeral-castle/castle/internal/store"
)

// TestLogIsLinearizable lets several machines append, read the head and prune at once, on a store that is
// slow, loses answers and carries requests out after their sender has given up. Each history must be one that
// a log could have which does one thing after the other. CASTLE_SOAK_SEED replays a history, and
// CASTLE_SOAK_HISTORIES says how many there are.
func TestLogIsLinearizable(t *testing.T) {
	histories := cmp.Or(number(t, "CASTLE_SOAK_HISTORIES"), 15)
	seed := number(t, "CASTLE_SOAK_SEED")
	if seed != 0 {
		histories = 1
	} else {
		seed = uint64(time.Now().UnixNano())
	}
	for i := range histories {
		one := seed + i
		for name, prunes := range map[string]bool{"lasting": false, "pruned": true} {
			var history []porcupine.Operation
			synctest.Test(t, func(t *testing.T) { history = clientsOf(t, one, prunes) })
			model := oneLog.ToModel()
			result := porcupine.CheckOperationsTimeout(model, history, time.Minute)
			if result != porcupine.Ok {
				var text strings.Builder
				for _, o := range history {
					fmt.Fprintf(&text, "%4d to %d, client %d: %s\n", o.Call, o.Return, o.ClientId,
						model.DescribeOperation(o.Input, o.Output))
				}
				t.Fatalf("%s log: %s; replay it with CASTLE_SOAK_SEED=%d\n%s", name, result, one,
					text.String())
			}
		}
	}
}

func number(t *testing.T, variable string) uint64 {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return 0
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	return n
}

// logInput is a call of Append after one of some commits, or of Head if it has no name. Commits are known by
// their names: Commit.What.
type logInput struct {
	name  string
	after []string
	// lists is whether Append lists the log after a commit, because its knowledge of the head is old. Another
	// machine may have appended to the commit by then: it is taken back, and refused.
	lists bool
}

// logOutput is the name of the head that Head returned, or what Append did.
type logOutput struct {
	head    string
	refused bool // with a ConflictError
	unknown bool // with another error: it may have happened, or happen later
}

// oneLog is a log as its users see it: its state is the name of the head.
var oneLog = porcupine.NondeterministicModel{
	Init: func() []any { return []any{""} },
	Step: func(state, input, output any) []any {
		in, out := input.(logInput), output.(logOutput)
		follows := slices.Contains(in.after, state.(string))
		switch {
		case in.name == "" && (out.unknown || out.head == state):
			return []any{state}
		case in.name == "":
			return nil
		case out.unknown && follows:
			return []any{state, in.name}
		case out.unknown, out.refused && !follows:
			return []any{state}
		case out.refused && in.lists:
			return []any{in.name}
		case !out.refused && follows:
			return []any{in.name}
		}
		return nil
	},
	DescribeOperation: func(input, output any) string {
		in, out := input.(logInput), output.(logOutput)
		if in.name == "" {
			return fmt.Sprintf("the head is %q, unknown %t", out.head, out.unknown)
		}
		return fmt.Sprintf("append %s after one of %q: refused %t, unknown %t", in.name, in.after,
			out.refused, out.unknown)
	},
}

// clientsOf returns the history of some machines with one log.
func clientsOf(t *testing.T, seed uint64, prunes bool) (history []porcupine.Operation) {
	const clients, operations = 4, 14
	shared := commitstest.New("memory://store")
	var clock atomic.Int64
	var mu sync.Mutex
	var all, late sync.WaitGroup
	for id := range clients {
		random := rand.New(rand.NewPCG(seed, uint64(id)))
		c := &logClient{id: id, random: random, prunes: prunes,
			log: open(t, &unreliable{Store: shared.Share(), late: &late,
				random: rand.New(rand.NewPCG(seed, uint64(clients+id)))})}
		all.Go(func() {
			for range operations {
				pause := 20 * time.Millisecond
				if random.IntN(4) == 0 { // so long that others append and prune
					pause = 500 * time.Millisecond
				}
				<-time.After(upTo(random, pause))
				o := porcupine.Operation{ClientId: id, Call: clock.Add(1)}
				o.Input, o.Output = c.next(t.Context())
				o.Return = clock.Add(1)
				if out := o.Output.(logOutput); out.unknown {
					o.Return = math.MaxInt64
				}
				mu.Lock()
				history = append(history, o)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	late.Wait()
	return history
}

func upTo(random *rand.Rand, most time.Duration) time.Duration {
	return time.Duration(random.Int64N(int64(most)))
}

// logClient is a machine that works on the log without a lock, as runs do when they race for it.
type logClient struct {
	id     int
	random *rand.Rand
	prunes bool
	log    *Log

	head  *Commit
	count int
	lost  []string // commits that may have happened
}

// next does one thing.
func (c *logClient) next(ctx context.Context) (logInput, logOutput) {
	if c.random.IntN(3) == 0 {
		head, err := c.log.Head(ctx)
		if err != nil {
			return logInput{}, logOutput{unknown: true}
		}
		c.head = head
		return logInput{}, logOutput{head: nameOf(head)}
	}
	c.count++
	in := logInput{name: fmt.Sprintf("%d/%d", c.id, c.count),
		after: append([]string{nameOf(c.head)}, c.lost...), lists: c.prunes}
	// With such a lock no knowledge of the head is fresh: castle lists after each commit.
	lock := &Lock{Run: in.name, Lasts: time.Hour}
	if c.prunes {
		lock.Lasts = time.Nanosecond
	}
	made, err := c.log.Append(ctx, c.head, Commit{What: in.name, Run: in.name, Lock: lock})
	conflict, is := errors.AsType[*ConflictError](err)
	switch {
	case is:
		c.head = conflict.Head
		return in, logOutput{refused: true}
	case err != nil:
		c.lost = append(c.lost, in.name)
		return in, logOutput{unknown: true}
	}
	c.head = made
	if c.prunes && c.random.IntN(3) == 0 {
		c.log.Prune(ctx, made, 2, planned) //nolint:errcheck // the store is unreliable
	}
	return in, logOutput{}
}

func nameOf(c *Commit) string {
	if c == nil {
		return ""
	}
	return c.What
}

// unreliable is a store whose requests take time, fail before or after they were carried out, or are carried
// out when nobody waits for the answer any more.
type unreliable struct {
	store.Store

	mu     sync.Mutex // for random: a client has several requests at a time
	random *rand.Rand
	late   *sync.WaitGroup
}

var errNoAnswer = errors.New("no answer")

func (u *unreliable) request(op string, do func() error) error {
	u.mu.Lock()
	before, after := upTo(u.random, 10*time.Millisecond), upTo(u.random, 10*time.Millisecond)
	fate, later := u.random.IntN(20), upTo(u.random, 100*time.Millisecond)
	u.mu.Unlock()
	<-time.After(before)
	switch {
	case fate == 0:
		return errNoAnswer
	case fate == 1 && op == "create":
		u.late.Go(func() {
			<-time.After(later)
			do() //nolint:errcheck // nobody waits for it
		})
		return errNoAnswer
	}
	err := do()
	<-time.After(after)
	if fate == 2 {
		return errNoAnswer
	}
	return err
}

func (u *unreliable) Read(ctx context.Context, key string) (value []byte, err error) {
	err = u.request("read", func() error {
		value, err = u.Store.Read(ctx, key)
		return err
	})
	return value, err
}

func (u *unreliable) Create(ctx context.Context, key string, value []byte) error {
	return u.request("create", func() error { return u.Store.Create(ctx, key, value) })
}

func (u *unreliable) List(ctx context.Context, prefix string) (keys []string, err error) {
	err = u.request("list", func() error {
		keys, err = u.Store.List(ctx, prefix)
		return err
	})
	return keys, err
}

func (u *unreliable) Delete(ctx context.Context, key string) error {
	return u.request("delete", func() error { return u.Store.Delete(ctx, key) })
}
