package ui

import "golang.org/x/sys/unix"

// These read and set a terminal's attributes.
const getTermios, setTermios = unix.TIOCGETA, unix.TIOCSETA
