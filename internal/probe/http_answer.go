package probe

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/ephemeral-castle/castle/internal/gate"
)

const (
	largest        = 1 << 20  // of a body, where a text is looked for
	largestHeaders = 64 << 10 // of an answer
)

func (p *page) check(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url.String(), http.NoBody)
	if err != nil {
		return faultOf(p.url.Redacted(), err)
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
	answers := "answers " + status(response.StatusCode)
	switch {
	case bytes.Contains(body, []byte(p.contains)): // whatever happened afterwards
		return nil
	case err != nil:
		return faultOf(p.url.Redacted()+": "+answers+", then", err)
	case len(body) == largest:
		return p.says(fmt.Sprintf("%s, without %q in the first MiB", answers, p.contains), "")
	}
	return p.says(fmt.Sprintf("%s, without %q", answers, p.contains), "")
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
			return gate.Permanent(p.says("answers https only: write url with https", ""))
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
	return p.says(text, behind(code))
}

func status(code int) string {
	return strings.TrimSpace(fmt.Sprintf("%d %s", code, http.StatusText(code)))
}

// behind says what is likely behind a status that was not wanted.
func behind(code int) string {
	switch code {
	case http.StatusUnauthorized, http.StatusForbidden:
		return "it wants a login, which a gate has not: ask a page without one, or list the status"
	case http.StatusNotFound:
		return "a server is there and does not know the page: another one answers, the path is wrong, or its route is not there yet"
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return "a proxy or ingress controller answers with nothing ready behind it, or the server itself says that it is not ready"
	}
	return ""
}

// failed puts a request without an answer into words.
func (p *page) failed(err error) error {
	var foreign x509.UnknownAuthorityError
	switch {
	case errors.Is(err, http.ErrSchemeMismatch):
		return gate.Permanent(p.says("speaks http, not https: write url with http", ""))
	case errors.As(err, &foreign) && p.caFile != "":
		return p.says("its certificate is signed by no authority of "+p.caFile, ownCertificate)
	case errors.As(err, &foreign):
		return p.says("its certificate is signed by no authority that this machine trusts (ca_file names another)", ownCertificate)
	}
	return faultOf(p.url.Redacted(), err)
}

const ownCertificate = "an ingress controller shows a certificate of its own until the right one has been issued"

func (p *page) says(seen, cause string) error {
	return &fault{seen: p.url.Redacted() + ": " + seen, cause: cause}
}
