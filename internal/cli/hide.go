package cli

import (
	"os"

	"golang.org/x/sys/unix"
)

// hide keeps a terminal from showing what is typed, until show is called or castle
// is interrupted. Who is asked for several things types, or pastes, ahead: what
// nobody has asked for by then is thrown away and reaches no shell.
func (a *app) hide(terminal *os.File) (show func(), err error) {
	fd := int(terminal.Fd())
	before, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.show = func() { _ = unix.IoctlSetTermios(fd, unix.TCSETSF, before) } // who has no terminal any more sees nothing
	hidden := *before
	hidden.Lflag &^= unix.ECHO
	return a.show, unix.IoctlSetTermios(fd, unix.TCSETSF, &hidden)
}
