package cli

import "golang.org/x/sys/unix"

// These read a terminal's attributes, and set them once what was typed before is dropped.
const getTermios, setTermios = unix.TCGETS, unix.TCSETSF
