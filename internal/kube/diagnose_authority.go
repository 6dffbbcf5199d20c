package kube

import (
	"cmp"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"strings"
	"time"
)

// bundled says in a few words which certificates a caBundle holds.
func bundled(bundle string) string {
	text, err := base64.StdEncoding.DecodeString(bundle)
	if err != nil {
		return "(no base64)"
	}
	var all []string
	for _, c := range certificates(text) {
		all = append(all, fmt.Sprintf("%q, valid from %s to %s", cmp.Or(c.Subject.CommonName, c.Subject.String()),
			c.NotBefore.UTC().Format(time.RFC3339), c.NotAfter.UTC().Format(time.RFC3339)))
	}
	if len(all) == 0 {
		return "(no certificate)"
	}
	return "(certificate of " + strings.Join(all, "; ") + ")"
}

func certificates(text []byte) []*x509.Certificate {
	var all []*x509.Certificate
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return all
		}
		if c, err := x509.ParseCertificate(block.Bytes); err == nil {
			all = append(all, c)
		}
	}
}
