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
	"regexp"
	"strings"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// Explain puts an error of the client into words and marks it permanent if no waiting can heal it. An answer
// that a check has already worded passes unchanged.
func (a *API) Explain(err error) error {
	at := func(text string) error { return fmt.Errorf("kubernetes API at %s: %s", a.Host, text) }
	if _, worded := errors.AsType[*gate.Finding](err); worded || gate.IsPermanent(err) {
		return err
	}
	if expired, permanent := expiry(err); permanent {
		return gate.Permanent(at(expired))
	} else if expired != "" {
		return at(expired)
	}
	if _, foreign := errors.AsType[x509.UnknownAuthorityError](err); foreign {
		return gate.Permanent(at("its certificate belongs to another cluster: " +
			"the kubeconfig's authority has not signed it"))
	}
	if LacksPermission(err) {
		return a.Refused(Message(err))
	}
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		return at(Brief(status.Status().Message))
	}
	if request, ok := errors.AsType[*url.Error](err); ok {
		return at(Brief(reason(request.Err)))
	}
	return err
}

// Refused is the error for a user that the API refuses without a reason; its certificate may tell one.
func (a *API) Refused(message string) error {
	if !a.expires.IsZero() && time.Now().After(a.expires) {
		message = "its certificate has expired on " + day(a.expires)
	}
	return gate.Permanent(fmt.Errorf("kubernetes API at %s refuses the kubeconfig's user: %s", a.Host,
		Brief(message)))
}

// LacksPermission reports whether the API does not know the user, or the user lacks a permission. Admission
// forbids too, in other words: a namespace that terminates, a used-up quota, an admission plugin that is not
// ready. All of that passes.
func LacksPermission(err error) bool {
	message := Message(err)
	return apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) &&
		strings.Contains(message, `User "`) && strings.Contains(message, `" cannot `)
}

// Message is the API server's own message; empty if it has not answered. The API server puts "Internal error
// occurred" in front of a webhook that could not be called.
func Message(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return ""
	}
	return strings.TrimPrefix(status.Status().Message, "Internal error occurred: ")
}

// Unreachable explains why the API does not answer as it should.
func (a *API) Unreachable(err error) string {
	expired, _ := expiry(err)
	_, foreign := errors.AsType[x509.UnknownAuthorityError](err)
	_, misnamed := errors.AsType[x509.HostnameError](err)
	_, unresolved := errors.AsType[*net.DNSError](err)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Sprintf("a machine has the address %s, but no kube-apiserver listens there: "+
			"it is not up yet, or it does not stay up", a.Host)
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return fmt.Sprintf("nothing has the address %s: the machine is off or elsewhere, "+
			"or no control plane holds the virtual address", a.Host)
	case expired != "":
		return fmt.Sprintf("the certificates of %s are not valid now: %s", a.Host, expired)
	case foreign:
		return fmt.Sprintf("another cluster answers at %s, or this one was created anew with other keys",
			a.Host)
	case misnamed:
		return fmt.Sprintf("the API server's certificate is not made for %s: "+
			"the address is missing in the cluster's apiServer.certSANs", a.Host)
	case unresolved:
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
	if number, ok := errors.AsType[syscall.Errno](err); ok {
		return number.Error()
	}
	if certificate, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return certificate.Err.Error()
	}
	return err.Error()
}

// longest is how much of a message of the cluster is repeated.
const longest = 240

var (
	// x509 gives the two times behind its message only.
	ended    = regexp.MustCompile(`certificate has expired or is not yet valid: current time \S+ is after `)
	notBegun = regexp.MustCompile(`certificate has expired or is not yet valid: current time \S+ is before `)
	// calls is the address that the API server has called.
	calls = regexp.MustCompile(`failed to call webhook: Post "[^"]*": `)
)

// Brief makes one short line of a message. Of a long one it keeps the result of a call, not the address.
func Brief(message string) string {
	message = strings.Join(strings.Fields(message), " ")
	message = ended.ReplaceAllString(message, "certificate has expired on ")
	message = notBegun.ReplaceAllString(message, "certificate is not valid before ")
	if len([]rune(message)) > longest {
		message = calls.ReplaceAllString(message, "")
	}
	if runes := []rune(message); len(runes) > longest {
		return string(runes[:longest]) + "…"
	}
	return message
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
