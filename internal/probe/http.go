package probe

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/process"
)

// web asks whether a URL answers as it should:
//
//	gate "http" "health" {
//	  url      = "https://10.0.0.5:8443/health"
//	  status   = [200, 429]           # any 2xx if absent
//	  contains = "\"sealed\":false"
//	  ca_file  = "/etc/castle/ca.pem" # this machine's authorities if absent
//	}
func web() gate.Type {
	return gate.Type{
		Name:    "http",
		Summary: "a URL answers a GET with the right status and text",
		Attributes: map[string]gate.Attribute{
			"url":      {Type: cty.String, Required: true, Valid: validURL, Help: "What to ask, http or https; redirects are not followed."},
			"status":   {Type: cty.List(cty.Number), Valid: validStatus, Help: "The statuses that count as ready; any 2xx if absent."},
			"contains": {Type: cty.String, Valid: validText, Help: "A text that has to be in the first MiB of the answer."},
			"ca_file":  {Type: cty.String, Valid: validPath, Help: "A file of PEM certificates to trust instead of this machine's authorities."},
			"insecure": {Type: cty.Bool, Help: "Whether to take any certificate."},
		},
		Check: possible,
		New: func(name string, _ gate.Target, v gate.Values) (gate.Gate, error) {
			p, err := newPage(v)
			if err != nil {
				return gate.Gate{}, err
			}
			check := bound(p.check)
			return gate.Gate{Name: name, Check: check, Diagnose: diagnosed(check, p.look)}, nil
		},
	}
}

// possible refuses what cannot be meant. What is not known yet is judged once it is.
func possible(v gate.Values) error {
	if v.Has("ca_file") && v.Bool("insecure") {
		return errors.New("ca_file says which certificates to take and insecure takes any: leave one out")
	}
	if strings.HasPrefix(strings.ToLower(v.String("url")), "http:") {
		for _, name := range []string{"ca_file", "insecure"} {
			if v.Has(name) {
				return errors.New(name + " is about certificates, and an http URL shows none: write https, or leave it out")
			}
		}
	}
	return nil
}

// page is what a gate asks, and what it expects.
type page struct {
	url      *url.URL
	status   []int // empty: any 2xx
	contains string
	caFile   string
	tls      *tls.Config
	look     string
}

func newPage(v gate.Values) (*page, error) {
	p := &page{contains: v.String("contains"), caFile: v.String("ca_file"), tls: &tls.Config{InsecureSkipVerify: v.Bool("insecure")}}
	var err error
	if p.url, err = url.Parse(v.String("url")); err != nil {
		return nil, errNoURL
	}
	if err := v.Decode("status", &p.status); err != nil {
		return nil, fmt.Errorf("status: %w", err)
	}
	options := ""
	if v.Bool("insecure") {
		options = " --insecure"
	}
	if p.caFile != "" {
		options = " --cacert " + process.Quote(p.caFile)
		pem, err := os.ReadFile(p.caFile)
		if err != nil {
			return nil, fmt.Errorf("ca_file: %w", err)
		}
		p.tls.RootCAs = x509.NewCertPool()
		if !p.tls.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("ca_file: %s holds no certificate in PEM form", p.caFile)
		}
	}
	p.look = "curl --verbose" + options + " " + process.Quote(p.url.Redacted())
	return p, nil
}
