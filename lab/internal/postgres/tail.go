package postgres

import (
	"io"
	"strings"
	"sync"
)

// mostTail is how much of a program's output its error shows.
const mostTail = 1000

// tail passes the output of a program on, and keeps the end of it.
type tail struct {
	to io.Writer // nil: nowhere

	mu   sync.Mutex
	kept []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, p...)
	t.kept = t.kept[max(0, len(t.kept)-mostTail):]
	if t.to == nil {
		return len(p), nil
	}
	return t.to.Write(p)
}

// text is the end of the output.
func (t *tail) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.ToValidUTF8(strings.TrimSpace(string(t.kept)), "")
}
