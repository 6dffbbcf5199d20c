package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// Explain puts an error of the client into words and marks it permanent if no waiting can heal it. An answer
// that a check has already worded passes unchanged.
func (a *API) Explain(err error) error {
	var (
		status  apierrors.APIStatus
		foreign x509.UnknownAuthorityError
		request *url.Error
	)
	at := func(text string) error { return fmt.Errorf("kubernetes API at %s: %s", a.Host, text) }
	expired, permanent := expiry(err)
	switch {
	case gate.IsPermanent(err):
		return err
	case expired != "" && permanent:
		return gate.Permanent(at(expired))
	case expired != "":
		return at(expired)
	case errors.As(err, &foreign):
		return gate.Permanent(at("its certificate belongs to another cluster: " +
			"the kubeconfig's authority has not signed it"))
	case isRefused(err):
		errors.As(err, &status)
		return a.refused(status.Status().Message)
	case errors.As(err, &status):
		return at(Brief(status.Status().Message))
	case errors.As(err, &request):
		return at(Brief(reason(request.Err)))
	}
	return err
}

func (a *API) refused(message string) error {
	return gate.Permanent(fmt.Errorf("kubernetes API at %s refuses the kubeconfig's user: %s", a.Host,
		Brief(message)))
}

// isRefused reports whether the API does not know the user, or the user lacks a permission. Admission
// forbids too, in other words: a namespace that terminates, a used-up quota, an admission plugin that is not
// ready. All of that passes.
func isRefused(err error) bool {
	return apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) &&
		strings.Contains(err.Error(), `User "`)
}

// LacksPermission distinguishes a refusal of the user from one of the object: a quota, a terminating
// namespace and the rules for Pods forbid as well.
func LacksPermission(err error) bool {
	message := Message(err)
	return apierrors.IsUnauthorized(err) ||
		apierrors.IsForbidden(err) && strings.Contains(message, `User "`) &&
			strings.Contains(message, `" cannot `)
}

// Answered reports whether an error is the API's own answer.
func Answered(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status)
}

// Message is the API server's own message. It puts "Internal error occurred" in front of a webhook that
// could not be called.
func Message(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return ""
	}
	return strings.TrimPrefix(status.Status().Message, "Internal error occurred: ")
}

// Unreachable explains why the API does not answer as it should.
func (a *API) Unreachable(err error) string {
	var (
		foreign x509.UnknownAuthorityError
		name    x509.HostnameError
		lookup  *net.DNSError
	)
	expired, _ := expiry(err)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Sprintf("a machine has the address %s, but no kube-apiserver listens there: "+
			"it is not up yet, or it does not stay up", a.Host)
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return fmt.Sprintf("nothing has the address %s: the machine is off or elsewhere, "+
			"or no control plane holds the virtual address", a.Host)
	case expired != "":
		return fmt.Sprintf("the certificates of %s are not valid now: %s", a.Host, expired)
	case errors.As(err, &foreign):
		return fmt.Sprintf("another cluster answers at %s, or this one was created anew with other keys",
			a.Host)
	case errors.As(err, &name):
		return fmt.Sprintf("the API server's certificate is not made for %s: "+
			"the address is missing in the cluster's apiServer.certSANs", a.Host)
	case errors.As(err, &lookup):
		return fmt.Sprintf("the resolver does not know the name of %s", a.Host)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("%s takes no connection or gives no answer: no machine has the address, "+
			"something drops the packets, or etcd has no quorum", a.Host)
	}
	return a.Explain(err).Error()
}

// expiry reports that a certificate of the connection is not valid now; empty if all are. permanent is false
// if that may change: a server's certificate may be renewed, or a clock corrected.
func expiry(err error) (text string, permanent bool) {
	var invalid x509.CertificateInvalidError
	if !errors.As(err, &invalid) || invalid.Reason != x509.Expired || invalid.Cert == nil {
		return "", false
	}
	whose := "its certificate"
	if invalid.Cert.IsCA {
		whose = "the kubeconfig's authority"
	}
	if time.Now().Before(invalid.Cert.NotBefore) {
		return fmt.Sprintf("%s is not valid before %s: a clock is wrong, here or there",
			whose, day(invalid.Cert.NotBefore)), false
	}
	return whose + " has expired on " + day(invalid.Cert.NotAfter), invalid.Cert.IsCA
}

// Certificates reads the certificates in a PEM text.
func Certificates(text []byte) []*x509.Certificate {
	var all []*x509.Certificate
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if c, err := x509.ParseCertificate(block.Bytes); err == nil {
			all = append(all, c)
		}
	}
	return all
}

// day is a moment as Kubernetes writes it.
func day(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// reason leaves out the layers that repeat the address.
func reason(err error) string {
	var (
		number      syscall.Errno
		certificate *tls.CertificateVerificationError
	)
	switch {
	case errors.As(err, &number):
		return number.Error()
	case errors.As(err, &certificate):
		return certificate.Err.Error()
	}
	return err.Error()
}

// longest is how much of a message of the cluster is repeated.
const longest = 240

// Brief makes one short line of a message.
func Brief(message string) string {
	message = dated(strings.Join(strings.Fields(message), " "))
	if len([]rune(message)) > longest {
		message = withoutCall(message)
	}
	if runes := []rune(message); len(runes) > longest {
		return string(runes[:longest]) + "…"
	}
	return message
}

// dated reports whether a certificate is expired or not yet valid. x509 only gives the two times behind its
// message.
func dated(message string) string {
	before, moments, found := strings.Cut(message,
		"certificate has expired or is not yet valid: current time ")
	parts := strings.SplitN(moments, " ", 4)
	if !found || len(parts) < 4 {
		return message
	}
	says, end := "certificate has expired on ", parts[3]
	if parts[2] == "before" {
		says = "certificate is not valid before "
	}
	return before + says + end
}

// withoutCall leaves out which address the API server has called, so that the result of the call fits.
func withoutCall(message string) string {
	before, call, found := strings.Cut(message, `failed to call webhook: Post "`)
	_, came, ended := strings.Cut(call, `": `)
	if !found || !ended {
		return message
	}
	return before + came
}

// Most is how many objects a message names before it only counts.
const Most = 5

// Several joins the problems of many objects.
func Several(items []string) string {
	if len(items) > Most {
		return fmt.Sprintf("%s; and %d more", strings.Join(items[:Most], "; "), len(items)-Most)
	}
	return strings.Join(items, "; ")
}
