// Package session sends requests to a Proxmox VE datacenter. Session, token and requests are those of
// github.com/Telmate/proxmox-api-go: NewClient, SetAPIToken, GetJsonRetryable with one try, Post and Delete.
// castle gives it an http.Client whose transport sends each request once and keeps what the library drops:
// the status, the reason phrase (the only error text before release 8.4), and the body's message and errors.
// The library's typed reads panic on unusual answers or drop filters; its waits repeat what was refused. A
// network may lie: a proxy answers in Proxmox' place, or an answer is cut short. So castle repeats a read
// that failed, and every read names what Proxmox always sends. castle never repeats another request.
package session

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	pve "github.com/Telmate/proxmox-api-go/proxmox"

	"github.com/ephemeral-castle/castle/internal/httpjson"
	"github.com/ephemeral-castle/castle/internal/platform"
	"github.com/ephemeral-castle/castle/internal/platform/proxmox/values"
)

// Timeout bounds one request. It is a little more than a node waits for another one.
const Timeout = 40 * time.Second

// Session sends requests to one datacenter. It is safe for concurrent use.
type Session struct {
	api     *pve.Client
	Address string // https://host:8006
	// User is the token's name without its secret: user@realm!name.
	User string
}

// Open makes a session. It does not contact the datacenter.
func Open(o platform.Account) (*Session, error) {
	host, err := Host(o.Endpoint)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{InsecureSkipVerify: o.Insecure} //nolint:gosec // asked for
	if o.CA != "" {
		if config.RootCAs, err = x509.SystemCertPool(); err == nil {
			err = httpjson.AddRoots(config.RootCAs, o.CA)
		}
		if err != nil {
			return nil, fmt.Errorf("ca_file: %w", err)
		}
	}
	return New(o.Token, "https://"+host, &http.Transport{
		Proxy: http.ProxyFromEnvironment, TLSClientConfig: config, IdleConnTimeout: time.Minute,
	})
}

// New makes a session whose requests a transport sends.
func New(token, address string, base http.RoundTripper) (*Session, error) {
	api, err := pve.NewClient(address+"/api2/json", &http.Client{Transport: transport{base}}, "", nil, "",
		0, false)
	if err != nil {
		return nil, err
	}
	name, secret, _ := strings.Cut(token, "=")
	var id pve.ApiTokenID
	if id.Parse(name) == nil { // without a token, Proxmox answers 401
		api.SetAPIToken(id, pve.ApiTokenSecret(secret))
	}
	return &Session{api, address, name}, nil
}

// Host returns the host and port of an endpoint.
func Host(address string) (string, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" || u.Host == "" {
		return "", fmt.Errorf(`endpoint %q is not an address such as "https://proxmox.example:8006"`, address)
	}
	return u.Host, nil
}

// exchange is what the library does not return of a request: it travels in the request's context.
type exchange struct {
	date   string
	task   json.RawMessage // the data of a change: the library drops it
	failed chan error      // gets the reason if there is no good answer
}

type exchangeKey struct{}

// transport sends the library's requests once. It gives the library a good answer as it is, and an error for
// any other: the library tells those apart by their status alone.
type transport struct{ base http.RoundTripper }

func (t transport) RoundTrip(request *http.Request) (*http.Response, error) {
	x := request.Context().Value(exchangeKey{}).(*exchange)
	response, err := t.base.RoundTrip(request)
	if err == nil {
		err = x.read(request.Method, response)
	}
	if err != nil {
		x.failed <- err
		return nil, err
	}
	return response, nil
}

// read checks an answer and leaves its body to be read again.
func (x *exchange) read(method string, response *http.Response) error {
	defer response.Body.Close() //nolint:errcheck // it is only read
	x.date = response.Header.Get("Date")
	body, err := io.ReadAll(io.LimitReader(response.Body, 32<<20))
	if err != nil {
		return err
	}
	var envelope struct{ Data json.RawMessage }
	noJSON := json.Unmarshal(body, &envelope)
	kind := cmp.Or(response.Header.Get("Content-Type"), "no content type")
	switch code := response.StatusCode; {
	case code >= http.StatusBadRequest && len(body) > 0 && noJSON != nil:
		return &foreignAnswer{what: fmt.Sprintf("%s (%s)", response.Status, kind)}
	case code/100 != 2:
		return values.NewError(response, body)
	case noJSON != nil:
		return &foreignAnswer{what: fmt.Sprintf("%d bytes that are not its JSON (%s)", len(body), kind)}
	}
	if method != http.MethodGet {
		x.task = envelope.Data
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	return nil
}

// foreignAnswer is an answer that Proxmox does not send: it proves nothing.
type foreignAnswer struct{ address, what string }

func (f *foreignAnswer) Error() string {
	return fmt.Sprintf("%s answered, but not as Proxmox VE does: %s", f.address, f.what)
}

// Get reads the data of a path, which may have a query. lacks returns what the data lacks that Proxmox always
// sends; "" if it is complete.
func Get[T any](ctx context.Context, s *Session, path string, lacks func(T) string) (data T, err error) {
	err = httpjson.Repeat(ctx, func(ctx context.Context) error {
		var read T // nothing of an answer that was refused
		if _, err := s.Call(ctx, http.MethodGet, path, &read); err != nil {
			return err
		}
		if what := lacks(read); what != "" {
			return s.failed(http.MethodGet, path, &foreignAnswer{what: what})
		}
		data = read
		return nil
	})
	return data, err
}

// Row is one of a list.
type Row interface {
	Key() string // tells it from the other rows; "" if it lacks what Proxmox always sends
}

// List reads the rows of a path.
func List[R Row](ctx context.Context, s *Session, path string) ([]R, error) {
	return Get(ctx, s, path, Incomplete[R])
}

// Incomplete returns what a list lacks that Proxmox always sends.
func Incomplete[R Row](rows []R) string {
	seen := map[string]bool{}
	for i, r := range rows {
		key := r.Key()
		switch {
		case key == "":
			return fmt.Sprintf("row %d of %d is incomplete", i+1, len(rows))
		case seen[key]:
			return key + " is there twice"
		}
		seen[key] = true
	}
	return ""
}

// Path formats a path. Texts among args are escaped.
func Path(path string, args ...any) string {
	for i, arg := range args {
		if text, ok := arg.(string); ok {
			args[i] = url.PathEscape(text)
		}
	}
	return fmt.Sprintf(path, args...)
}

// Call makes one request through the library and never repeats it: only the caller knows the meaning of a
// lost answer. It decodes the data into out, unless that is nil, and returns the Date header.
func (s *Session) Call(ctx context.Context, method, path string, out any) (date string, err error) {
	x := &exchange{failed: make(chan error, 1)}
	limited, stop := context.WithTimeout(context.WithValue(ctx, exchangeKey{}, x), Timeout)
	defer stop()
	answer, done := map[string]any{}, make(chan error, 1)
	go func() { done <- s.request(limited, method, "/"+path, &answer) }()
	select {
	case err = <-x.failed: // the library sleeps for a second before it returns it
	case err = <-done:
		select {
		case err = <-x.failed:
		default:
		}
	}
	switch {
	case err == nil:
		err = decode(method, answer["data"], x.task, out)
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case limited.Err() != nil:
		err = fmt.Errorf("no answer within %s: %w", Timeout, os.ErrDeadlineExceeded)
	}
	if err != nil {
		err = s.failed(method, path, err)
	}
	return x.date, err
}

func (s *Session) request(ctx context.Context, method, path string, answer *map[string]any) error {
	switch method {
	case http.MethodPost:
		return s.api.Post(ctx, nil, path)
	case http.MethodDelete:
		return s.api.Delete(ctx, path)
	}
	return s.api.GetJsonRetryable(ctx, path, answer, 1)
}

// decode puts the data of an answer into out.
func decode(method string, data any, task json.RawMessage, out any) (err error) {
	switch {
	case out == nil:
		return nil
	case method == http.MethodGet && data == nil:
		return &foreignAnswer{what: "no data"}
	case method == http.MethodGet:
		if task, err = json.Marshal(data); err != nil {
			return err
		}
	case task == nil:
		return nil
	}
	err = json.Unmarshal(task, out)
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return &foreignAnswer{what: fmt.Sprintf("a %s where %s belongs", wrong.Value, wrong.Type)}
	}
	return err
}

// failed adds the request to its error.
func (s *Session) failed(method, path string, err error) error {
	if foreign, ok := errors.AsType[*foreignAnswer](err); ok {
		foreign.address = s.Address
	}
	path, _, _ = strings.Cut(path, "?")
	return fmt.Errorf("proxmox: %s %s: %w", strings.ToLower(method), path, err)
}
