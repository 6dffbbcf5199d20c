package run

import (
	"io"
	"sync"
)

// lazyLog creates a stage's log file with its first line, so that an idle run leaves no empty logs.
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
