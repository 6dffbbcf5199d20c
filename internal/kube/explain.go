package kube

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// explain puts an error of the client into a person's words and marks it
// permanent if no waiting can heal it. An answer that a gate has already put
// into words passes unchanged.
func explain(host string, err error) error {
	var (
		status  apierrors.APIStatus
		foreign x509.UnknownAuthorityError
		request *url.Error
	)
	expired, permanent := expiry(err)
	switch {
	case gate.IsPermanent(err):
		return err
	case expired != "" && permanent:
		return gate.Permanent(fmt.Errorf("kubernetes API at %s: %s", host, expired))
	case expired != "":
		return fmt.Errorf("kubernetes API at %s: %s", host, expired)
	case errors.As(err, &foreign):
		return gate.Permanent(fmt.Errorf("kubernetes API at %s: its certificate belongs to another cluster: the kubeconfig's authority has not signed it", host))
	case refused(err):
		errors.As(err, &status)
		return gate.Permanent(fmt.Errorf("kubernetes API at %s refuses the kubeconfig's user: %s", host, brief(status.Status().Message)))
	case errors.As(err, &status):
		return fmt.Errorf("kubernetes API at %s: %s", host, brief(status.Status().Message))
	case errors.As(err, &request):
		return fmt.Errorf("kubernetes API at %s: %s", host, brief(reason(request.Err)))
	}
	return err
}

// refused says whether the API does not know the user, or the user has not the
// right. Admission forbids too, in other words: that a namespace is ending, a
// quota is used up, or that it is not ready itself while the API starts. All
// of that passes.
func refused(err error) bool {
	return apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) && strings.Contains(err.Error(), `User "`)
}

// expiry says that a certificate on the way is not valid at this time, empty if
// that is not it, and whether it stays so. An API server's own certificate may be
// renewed, or a clock put right.
func expiry(err error) (words string, permanent bool) {
	var invalid x509.CertificateInvalidError
	if !errors.As(err, &invalid) || invalid.Reason != x509.Expired || invalid.Cert == nil {
		return "", false
	}
	whose := "its certificate"
	if invalid.Cert.IsCA {
		whose = "the kubeconfig's authority"
	}
	if time.Now().Before(invalid.Cert.NotBefore) {
		return fmt.Sprintf("%s is not valid before %s: a clock is wrong, here or there", whose, day(invalid.Cert.NotBefore)), false
	}
	return whose + " has expired on " + day(invalid.Cert.NotAfter), invalid.Cert.IsCA
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

// brief makes one short line of a message.
func brief(message string) string {
	message = dated(strings.Join(strings.Fields(message), " "))
	if len([]rune(message)) > longest {
		message = withoutCall(message)
	}
	if runes := []rune(message); len(runes) > longest {
		return string(runes[:longest]) + "…"
	}
	return message
}

// dated says whether a certificate is too old or too new, which x509 leaves to
// be read from two moments behind it.
func dated(message string) string {
	before, moments, found := strings.Cut(message, "certificate has expired or is not yet valid: current time ")
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

// withoutCall leaves out which address the API server has called, so that what
// came of it finds room.
func withoutCall(message string) string {
	before, call, found := strings.Cut(message, `failed to call webhook: Post "`)
	_, came, ended := strings.Cut(call, `": `)
	if !found || !ended {
		return message
	}
	return before + came
}

// most is how many objects a message names before it only counts.
const most = 5

// several joins what is wrong with many objects.
func several(items []string) string {
	if len(items) > most {
		return fmt.Sprintf("%s; and %d more", strings.Join(items[:most], "; "), len(items)-most)
	}
	return strings.Join(items, "; ")
}
