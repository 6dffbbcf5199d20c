package kube

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"syscall"
)

// silence says what it means that the API does not answer as it should.
func silence(host string, err error) string {
	var (
		foreign x509.UnknownAuthorityError
		name    x509.HostnameError
		lookup  *net.DNSError
	)
	outdated, _ := expiry(err)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Sprintf("a machine has the address %s, but no kube-apiserver listens there: it is not up yet, or it does not stay up", host)
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return fmt.Sprintf("nothing has the address %s: the machine is off or elsewhere, or no control plane holds the virtual address", host)
	case outdated != "":
		return fmt.Sprintf("what proves who %s is cannot be relied on any more: %s", host, outdated)
	case errors.As(err, &foreign):
		return fmt.Sprintf("another cluster answers at %s, or this one was raised anew with other keys", host)
	case errors.As(err, &name):
		return fmt.Sprintf("the API server's certificate is not made for %s: the address is missing in the cluster's apiServer.certSANs", host)
	case errors.As(err, &lookup):
		return fmt.Sprintf("the name of %s is not known to the resolver", host)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("%s takes no connection or gives no answer: no machine has the address, something drops the packets, or etcd has no quorum", host)
	}
	return explain(host, err).Error()
}
