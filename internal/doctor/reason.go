package doctor

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/url"
)

// reason is why a request was not answered, without the address.
func reason(ctx context.Context, err error) error {
	var long *url.Error
	if errors.As(err, &long) {
		err = long.Err
	}
	return cause(ctx, err)
}

// mistrusted reports whether err says that a certificate is not trusted, or not
// that of the host.
func mistrusted(err error) bool {
	var (
		verification *tls.CertificateVerificationError
		authority    x509.UnknownAuthorityError
		host         x509.HostnameError
		invalid      x509.CertificateInvalidError
	)
	return errors.As(err, &verification) || errors.As(err, &authority) || errors.As(err, &host) || errors.As(err, &invalid)
}
