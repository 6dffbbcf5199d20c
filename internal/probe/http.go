package probe

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/httpjson"
	"github.com/ephemeral-castle/castle/internal/process"
)

const (
	largest        = 1 << 20  // of a body, where a text is searched
	largestHeaders = 64 << 10 // of a response
)

// web checks the response of a URL.
func web() gate.Type {
	return gate.Type{
		Name:    "http",
		Summary: "a URL answers a GET with the right status and text",
		Attributes: map[string]gate.Attribute{
			"url": {Type: cty.String, Required: true, Valid: validURL,
				Help: "The URL, http or https; redirects are not followed."},
			"status": {Type: cty.List(cty.Number), Valid: validStatus,
				Help: "The statuses that count as ready; any 2xx if absent."},
			"contains": {Type: cty.String, Valid: validText,
				Help: "A text that has to be in the first MiB of the response."},
			"ca_file": {Type: cty.String, Valid: validPath,
				Help: "A file of PEM certificates to trust instead of this machine's authorities."},
			"insecure": {Type: cty.Bool, Help: "Accept any certificate."},
		},
		Check: possible,
		New: func(name string, _ gate.Target, v gate.Values) (gate.Gate, error) {
			p, command, err := newPage(v)
			if err != nil {
				return gate.Gate{}, err
			}
			return bind(name, p.check, command), nil
		},
	}
}

// errNoURL does not quote the URL: there may be a password in it.
var errNoURL = errors.New(`is not a URL such as "https://10.0.0.5:8443/health"`)

func validURL(x cty.Value) error {
	u, err := url.Parse(x.AsString())
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || !plainHost(u.Hostname()):
		return errNoURL
	case u.Fragment != "":
		return fmt.Errorf("ends with #%s, which no server is ever sent", u.Fragment)
	case u.Port() == "":
		return nil
	}
	return validPort(u.Port())
}

func validStatus(x cty.Value) error {
	if x.LengthInt() == 0 {
		return errors.New("lists no status; leave it out to accept any 2xx")
	}
	for it := x.ElementIterator(); it.Next(); {
		_, one := it.Element()
		if one.IsNull() {
			return errors.New("null is not a status")
		}
		if code, accuracy := one.AsBigFloat().Int64(); accuracy != big.Exact || code < 200 || code > 599 {
			return fmt.Errorf("%s is not a final status (200 to 599)", one.AsBigFloat().Text('g', -1))
		}
	}
	return nil
}

func validText(x cty.Value) error {
	if x.AsString() == "" {
		return errors.New("is empty: every response contains that")
	}
	return nil
}

func validPath(x cty.Value) error {
	if !filepath.IsAbs(x.AsString()) {
		return fmt.Errorf("%q must begin with /: castle may be started anywhere", x.AsString())
	}
	return nil
}

// possible refuses contradictions. Values that are not known yet are checked once they are.
func possible(v gate.Values) error {
	plain := strings.HasPrefix(strings.ToLower(v.String("url")), "http:")
	for _, name := range []string{"ca_file", "insecure"} {
		if plain && v.Has(name) {
			return errors.New(name +
				" is about certificates, and an http URL has none: write https, or leave it out")
		}
	}
	if v.Has("ca_file") && v.Bool("insecure") {
		return errors.New("ca_file selects the accepted certificates and insecure accepts any: leave one out")
	}
	return nil
}

// page is the URL of a gate, and the expected response.
type page struct {
	url      *url.URL
	name     string // the URL without its password
	status   []int  // empty: any 2xx
	contains string
	caFile   string
	tls      *tls.Config
}

// newPage also returns the command for a user to look further.
func newPage(v gate.Values) (p *page, command string, err error) {
	p = &page{
		contains: v.String("contains"), caFile: v.String("ca_file"),
		tls: &tls.Config{InsecureSkipVerify: v.Bool("insecure")},
	}
	if p.url, err = url.Parse(v.String("url")); err != nil {
		return nil, "", errNoURL
	}
	if err := v.Decode("status", &p.status); err != nil {
		return nil, "", fmt.Errorf("status: %w", err)
	}
	p.name = p.url.Redacted()
	command = "curl --verbose "
	if v.Bool("insecure") {
		command += "--insecure "
	}
	if p.caFile != "" {
		command += "--cacert " + process.Quote(p.caFile) + " "
		p.tls.RootCAs = x509.NewCertPool()
		if err := httpjson.AddRoots(p.tls.RootCAs, p.caFile); err != nil {
			return nil, "", fmt.Errorf("ca_file: %w", err)
		}
	}
	return p, command + process.Quote(p.name), nil
}

func (p *page) check(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url.String(), http.NoBody)
	if err != nil {
		return faultOf(p.name, err)
	}
	request.Header.Set("User-Agent", "castle")
	client := &http.Client{
		Transport: &http.Transport{
			TLSClientConfig: p.tls, ForceAttemptHTTP2: true, DisableKeepAlives: true,
			MaxResponseHeaderBytes: largestHeaders,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	response, err := client.Do(request)
	if err != nil {
		return p.failed(err)
	}
	defer response.Body.Close() //nolint:errcheck // it is only read
	if err := p.checkStatus(response); err != nil || p.contains == "" {
		return err
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, largest))
	answers := "answers " + status(response.StatusCode)
	switch {
	case bytes.Contains(body, []byte(p.contains)): // even if the rest is missing
		return nil
	case err != nil:
		return faultOf(p.name+": "+answers+", then", err)
	case len(body) == largest:
		return p.fault(fmt.Sprintf("%s, without %q in the first MiB", answers, p.contains), "")
	}
	return p.fault(fmt.Sprintf("%s, without %q", answers, p.contains), "")
}

func (p *page) checkStatus(response *http.Response) error {
	code := response.StatusCode
	if slices.Contains(p.status, code) || len(p.status) == 0 && code >= 200 && code <= 299 {
		return nil
	}
	text := "answers " + status(code)
	if to, err := response.Location(); err == nil {
		same := to.Hostname() == p.url.Hostname() && to.Path == p.url.Path
		if p.url.Scheme == "http" && to.Scheme == "https" && same {
			return gate.Permanent(p.fault("answers https only: write url with https", ""))
		}
		text += " to " + to.Redacted() + ", which is not followed"
	}
	if len(p.status) > 0 {
		text += "; wanted: " + strings.ReplaceAll(strings.Trim(fmt.Sprint(p.status), "[]"), " ", ", ")
	}
	return p.fault(text, causeOf(code))
}

func status(code int) string {
	return strings.TrimSpace(fmt.Sprintf("%d %s", code, http.StatusText(code)))
}

// causeOf is the likely cause of an unwanted status.
func causeOf(code int) string {
	switch code {
	case http.StatusUnauthorized, http.StatusForbidden:
		return "it wants a login, which a gate does not have: choose a page without one, or list the status"
	case http.StatusNotFound:
		return "a server is there and does not know the page: another one answers, the path is wrong, " +
			"or its route is not there yet"
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return "a proxy or ingress controller answers with nothing ready behind it, " +
			"or the server itself says that it is not ready"
	}
	return ""
}

// failed explains a request without a response.
func (p *page) failed(err error) error {
	trusted := "that this machine trusts (ca_file names another)"
	if p.caFile != "" {
		trusted = "of " + p.caFile
	}
	var unknown x509.UnknownAuthorityError
	switch {
	case errors.Is(err, http.ErrSchemeMismatch):
		return gate.Permanent(p.fault("speaks http, not https: write url with http", ""))
	case errors.As(err, new(tls.RecordHeaderError)), strings.Contains(err.Error(), "malformed HTTP"),
		strings.Contains(err.Error(), "malformed MIME header"),
		strings.Contains(err.Error(), "readLoopPeekFailLocked: %!w(<nil>)"): // it spoke before the request
		return p.fault("answers, but not with "+strings.ToUpper(p.url.Scheme),
			"another kind of server listens on that port")
	case errors.As(err, &unknown):
		return p.fault("its certificate is signed by no authority "+trusted,
			"an ingress controller shows a certificate of its own until the right one has been issued")
	}
	return faultOf(p.name, err)
}

func (p *page) fault(seen, cause string) error {
	return &fault{seen: p.name + ": " + seen, cause: cause}
}
