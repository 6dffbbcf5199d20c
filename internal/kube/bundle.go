package kube

import (
	"crypto/x509"
	"encoding/pem"
	"time"
)

// judgeBundle says why the API server could trust no webhook by a caBundle;
// empty if it may. Whether it is the right one, only a call can tell.
func judgeBundle(bundle []byte) string {
	if len(bundle) == 0 {
		return "has no caBundle yet"
	}
	last, found := time.Time{}, false
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		if certificate, err := x509.ParseCertificate(block.Bytes); err == nil {
			found = true
			if certificate.NotAfter.After(last) {
				last = certificate.NotAfter
			}
		}
	}
	switch {
	case !found:
		return "has a caBundle that holds no certificate"
	case last.Before(time.Now()):
		return "has a caBundle whose authority has expired: on " + last.UTC().Format(time.DateTime) + " UTC"
	}
	return ""
}
