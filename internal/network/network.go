// Package network knows which errors of a connection pass, whatever is spoken over it.
package network

import (
	"errors"
	"io"
	"net"
	"slices"
	"syscall"
)

// Interrupted reports whether a connection failed or the time ran out, so that another attempt may succeed.
func Interrupted(err error) bool {
	if network, is := errors.AsType[net.Error](err); is && network.Timeout() {
		return true
	}
	return slices.ContainsFunc([]error{
		io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, syscall.ECONNREFUSED, syscall.ECONNRESET,
		syscall.ECONNABORTED, syscall.EPIPE, syscall.ENETUNREACH, syscall.EHOSTUNREACH, syscall.ETIMEDOUT,
		syscall.ENETDOWN, syscall.ESTALE,
	}, func(passing error) bool { return errors.Is(err, passing) })
}
