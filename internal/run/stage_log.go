package run

import (
	"io"
	"sync"
)

// lateLog is a stage's log that comes into being with its first line: a run that
// has nothing to do leaves no empty logs behind.
type lazyLog struct {
	open func() (io.WriteCloser, error)

	mu   sync.Mutex
	file io.WriteCloser
}

func (l *lazyLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil && len(p) > 0 {
		file, err := l.open()
		if err != nil {
			return 0, err
		}
		l.file = file
	}
	if l.file == nil {
		return 0, nil
	}
	return l.file.Write(p)
}

func (l *lazyLog) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return nil
	}
	return l.file.Close()
}
