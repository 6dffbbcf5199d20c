package probe

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// web asks whether a URL answers as it should:
//
//	gate "http" "health" {
//	  url      = "https://10.0.0.5:8443/health"
//	  status   = [200, 429]          # any 2xx if absent
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
			return gate.Gate{
				Name:     name,
				Check:    bound(p.check),
				Diagnose: func(context.Context) gate.Diagnosis { return gate.Diagnosis{Look: p.look} },
			}, nil
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
		options = " --cacert " + quote(p.caFile)
		pem, err := os.ReadFile(p.caFile)
		if err != nil {
			return nil, fmt.Errorf("ca_file: %w", err)
		}
		p.tls.RootCAs = x509.NewCertPool()
		if !p.tls.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("ca_file: %s holds no certificate in PEM form", p.caFile)
		}
	}
	p.look = "curl --verbose" + options + " " + quote(p.url.Redacted())
	return p, nil
}

// quote makes one word of s for a shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

const (
	largest        = 1 << 20  // of a body, where a text is looked for
	largestHeaders = 64 << 10 // of an answer
)

func (p *page) check(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url.String(), http.NoBody)
	if err != nil {
		return p.says("%s", reason(err))
	}
	request.Header.Set("User-Agent", "castle")
	client := &http.Client{
		Transport: &http.Transport{
			TLSClientConfig: p.tls, ForceAttemptHTTP2: true, DisableKeepAlives: true, MaxResponseHeaderBytes: largestHeaders,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	response, err := client.Do(request)
	if err != nil {
		return p.failed(err)
	}
	defer response.Body.Close() //nolint:errcheck // it was only read
	if err := p.judge(response); err != nil || p.contains == "" {
		return err
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, largest))
	switch {
	case bytes.Contains(body, []byte(p.contains)): // whatever happened afterwards
		return nil
	case err != nil:
		return p.says("answers %s, then: %s", status(response.StatusCode), reason(err))
	case len(body) == largest:
		return p.says("answers %s, without %q in the first MiB", status(response.StatusCode), p.contains)
	}
	return p.says("answers %s, without %q", status(response.StatusCode), p.contains)
}

// judge says what is wrong with an answer's status.
func (p *page) judge(response *http.Response) error {
	code := response.StatusCode
	if slices.Contains(p.status, code) || len(p.status) == 0 && code >= 200 && code <= 299 {
		return nil
	}
	text := "answers " + status(code)
	if to, err := response.Location(); err == nil {
		if p.url.Scheme == "http" && to.Scheme == "https" && to.Hostname() == p.url.Hostname() && to.Path == p.url.Path {
			return gate.Permanent(p.says("answers https only: write url with https"))
		}
		text += " to " + to.Redacted() + ", which is not followed"
	}
	if len(p.status) > 0 {
		var wanted []string
		for _, code := range p.status {
			wanted = append(wanted, fmt.Sprint(code))
		}
		text += "; wanted: " + strings.Join(wanted, ", ")
	}
	return p.says("%s", text)
}

func status(code int) string {
	return strings.TrimSpace(fmt.Sprintf("%d %s", code, http.StatusText(code)))
}

// failed puts a request without an answer into words.
func (p *page) failed(err error) error {
	var foreign x509.UnknownAuthorityError
	switch {
	case errors.Is(err, http.ErrSchemeMismatch):
		return gate.Permanent(p.says("speaks http, not https: write url with http"))
	case errors.As(err, &foreign) && p.caFile != "":
		return p.says("its certificate is signed by no authority of %s", p.caFile)
	case errors.As(err, &foreign):
		return p.says("its certificate is signed by no authority that this machine trusts (ca_file names another)")
	}
	return p.says("%s", reason(err))
}

func (p *page) says(format string, args ...any) error {
	return fmt.Errorf("%s: %s", p.url.Redacted(), fmt.Sprintf(format, args...))
}
