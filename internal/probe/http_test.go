package probe

import (
	"context"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// site answers by path.
func site() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/ok",
		func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{"sealed":false}`) })
	mux.HandleFunc("/busy",
		func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	mux.HandleFunc("/login",
		func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
	mux.HandleFunc("/moved", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/ok",
			http.StatusFound)
	})
	mux.HandleFunc("/secure", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "https://"+r.Host+"/secure", http.StatusPermanentRedirect)
	})
	mux.HandleFunc("/long", func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, strings.Repeat("x", largest)+"ready")
	})
	mux.HandleFunc("/odd", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(599) })
	mux.HandleFunc("/cut", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		io.WriteString(w, "ready, but")
	})
	mux.HandleFunc("/method",
		func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Method+" "+r.UserAgent()) })
	return mux
}

func statuses(v gate.Values, codes ...int64) gate.Values {
	var list []cty.Value
	for _, code := range codes {
		list = append(list, cty.NumberIntVal(code))
	}
	v["status"] = cty.ListVal(list)
	return v
}

func TestTheExpectedResponseIsOpen(t *testing.T) {
	server := httptest.NewServer(site())
	defer server.Close()
	for name, v := range map[string]gate.Values{
		"any 2xx":                   texts("url", server.URL+"/ok"),
		"a text":                    texts("url", server.URL+"/ok", "contains", `"sealed":false`),
		"one of several statuses":   statuses(texts("url", server.URL+"/busy"), 200, 503),
		"a redirect that is wanted": statuses(texts("url", server.URL+"/moved"), 302),
		"a text before a break":     texts("url", server.URL+"/cut", "contains", "ready"),
		"asked by name with a GET":  texts("url", server.URL+"/method", "contains", "GET castle"),
	} {
		t.Run(name, func(t *testing.T) {
			if err := gateOf(t, "http", v).Check(t.Context()); err != nil {
				t.Errorf("got %v, want open", err)
			}
		})
	}
}

func TestAnyOtherResponseIsDescribed(t *testing.T) {
	server := httptest.NewServer(site())
	defer server.Close()
	nobody := free(t)
	for name, c := range map[string]struct {
		values    gate.Values
		permanent bool
		words     string
	}{
		"nobody": {texts("url", "http://"+nobody), false, "http://" + nobody +
			": connection refused"},
		"a status": {texts("url", server.URL+"/busy"), false, server.URL +
			"/busy: answers 503 Service Unavailable"},
		"a status of its own": {texts("url", server.URL+"/odd"), false, "/odd: answers 599"},
		"not the wanted ones": {statuses(texts("url", server.URL+"/ok"), 401, 403), false,
			"answers 200 OK; wanted: 401, 403"},
		"a redirect": {texts("url", server.URL+"/moved"), false, "answers 302 Found to " +
			server.URL + "/ok, which is not followed"},
		"https only": {texts("url", server.URL+"/secure"), true,
			"answers https only: write url with https"},
		"another text": {texts("url", server.URL+"/ok", "contains", "ready"), false,
			`answers 200 OK, without "ready"`},
		"a text too far away": {texts("url", server.URL+"/long", "contains", "ready"), false,
			`without "ready" in the first MiB`},
		"a break": {texts("url", server.URL+"/cut", "contains", "whole"), false,
			"answers 200 OK, then: unexpected EOF"},
		"http behind https": {texts("url", strings.Replace(server.URL, "http", "https", 1)), true,
			"speaks http, not https: write url with http"},
		"a hidden password": {texts("url", "http://me:hidden@"+nobody), false, "http://me:xxxxx@" + nobody},
	} {
		t.Run(name, func(t *testing.T) {
			err := gateOf(t, "http", c.values).Check(t.Context())
			wantClosed(t, err, c.permanent, c.words)
			if strings.Contains(err.Error(), "hidden") {
				t.Errorf("%v tells a password", err)
			}
		})
	}
}

func TestCertificatesAreVerified(t *testing.T) {
	server := httptest.NewTLSServer(site())
	defer server.Close()
	authority := filepath.Join(t.TempDir(), "ca.pem")
	data := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(authority, data, 0o600); err != nil {
		t.Fatal(err)
	}
	url := server.URL + "/ok"
	for name, v := range map[string]gate.Values{
		"by the file":  texts("url", url, "ca_file", authority),
		"by no matter": {"url": cty.StringVal(url), "insecure": cty.True},
	} {
		if err := gateOf(t, "http", v).Check(t.Context()); err != nil {
			t.Errorf("%s: got %v, want open", name, err)
		}
	}
	// Each of these may be another one soon: none is permanent.
	foreign := gateOf(t, "http", texts("url", url)).Check(t.Context())
	wantClosed(t, foreign, false, "signed by no authority that this machine trusts")
	names := texts("url", strings.Replace(url, "127.0.0.1", "localhost", 1), "ca_file", authority)
	wantClosed(t, gateOf(t, "http", names).Check(t.Context()), false,
		"valid for example.com, *.example.com, not localhost")
}

func TestAnUnreadableAuthorityIsAnError(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for file, words := range map[string]string{empty: "has no PEM certificate", empty +
		".gone": "no such file"} {
		_, err := typed(t, "http").New("http.a", gate.Target{}, texts("url", "https://127.0.0.1:1", "ca_file",
			file))
		if err == nil || !strings.Contains(err.Error(), words) ||
			!strings.HasPrefix(err.Error(), "ca_file: ") {
			t.Errorf("got %v, want %q", err, words)
		}
	}
}

func TestDiagnoseNamesTheCauseOfAURL(t *testing.T) {
	server := httptest.NewTLSServer(site())
	defer server.Close()
	for path, c := range map[string]struct {
		insecure bool
		cause    string
	}{
		"/ok?a=it's": {true, "it was late"},
		"/busy":      {true, "a proxy or ingress controller answers with nothing ready behind it"},
		"/nowhere":   {true, "a server is there and does not know the page"},
		"/login":     {true, "it wants a login"},
		"/ok":        {false, "an ingress controller shows a certificate of its own"},
	} {
		v := texts("url", server.URL+path)
		look := "curl --verbose"
		if c.insecure {
			v["insecure"] = cty.True
			look += " --insecure"
		}
		look += " '" + server.URL + strings.Replace(path, "'", `'\''`, 1) + "'"
		if d := gateOf(t, "http", v).Diagnose(t.Context(), nil); !strings.HasPrefix(d.Cause, c.cause) ||
			d.Look != look {
			t.Errorf("%s: got %q and %s, want %q and %s", path, d.Cause, d.Look, c.cause, look)
		}
	}
}

func TestContradictionsAreRefused(t *testing.T) {
	for name, v := range map[string]gate.Values{
		"ca_file and insecure": {"url": cty.StringVal("https://a"), "ca_file": cty.StringVal("/ca.pem"),
			"insecure": cty.True},
		"ca_file and http":  {"url": cty.StringVal("http://a"), "ca_file": cty.StringVal("/ca.pem")},
		"insecure and http": {"url": cty.StringVal("HTTP://a"), "insecure": cty.True},
	} {
		if possible(v) == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	for name, v := range map[string]gate.Values{
		"ca_file, not insecure": {"url": cty.StringVal("https://a"), "ca_file": cty.StringVal("/ca.pem"),
			"insecure": cty.False},
		"a URL not known so far": {"url": cty.UnknownVal(cty.String), "insecure": cty.True},
	} {
		if err := possible(v); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestArgumentsAreValidated(t *testing.T) {
	number := func(x float64) cty.Value { return cty.ListVal([]cty.Value{cty.NumberFloatVal(x)}) }
	for _, c := range []struct {
		name  string
		value cty.Value
		good  bool
	}{
		{"url", cty.StringVal("https://a.example:8443/b?c=d"), true},
		{"url", cty.StringVal("http://[::1]:80"), true},
		{"url", cty.StringVal("https://"), false},
		{"url", cty.StringVal("a.example/b"), false},
		{"url", cty.StringVal("tcp://a.example:1"), false},
		{"url", cty.StringVal("https://a.example:70000"), false},
		{"url", cty.StringVal("https://a.example:x"), false},
		{"url", cty.StringVal("https://a.example/#top"), false},
		{"status", number(200), true},
		{"status", number(199), false},
		{"status", number(600), false},
		{"status", number(200.5), false},
		{"status", cty.ListVal([]cty.Value{cty.NullVal(cty.Number)}), false},
		{"status", cty.ListValEmpty(cty.Number), false},
		{"contains", cty.StringVal("x"), true},
		{"contains", cty.StringVal(""), false},
		{"ca_file", cty.StringVal("/ca.pem"), true},
		{"ca_file", cty.StringVal("ca.pem"), false},
	} {
		if err := typed(t, "http").Attributes[c.name].Valid(c.value); (err == nil) != c.good {
			t.Errorf("%s = %#v: %v", c.name, c.value, err)
		}
	}
	if err := validURL(cty.StringVal("https://me:hidden@a b/")); err == nil ||
		strings.Contains(err.Error(), "hidden") {
		t.Errorf("got %v, want words without the password", err)
	}
}

func TestReasonsAreShort(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{&net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: "a.example",
			IsNotFound: true}}, "it: the name a.example does not resolve"},
		{&net.OpError{Op: "dial", Err: context.DeadlineExceeded}, "it: no answer within 5s"},
		{&net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.EHOSTUNREACH)},
			"it: no route to host"},
		{errors.New("x509: certificate  has expired\nlong ago"), "it: certificate has expired long ago"},
		{errors.New(strings.Repeat("ä", 300)), "it: " + strings.Repeat("ä", longest) + "…"},
	} {
		if got := faultOf("it", c.err).Error(); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

// TestAnotherProtocolIsNamed has a server of another kind answer, such as SSH.
func TestAnotherProtocolIsNamed(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close() //nolint:errcheck // the test is over
	greetings := []string{"SSH-2.0-OpenSSH_9.6\r\n", "HTTP/1.1 200 OK\r\nnonsense\r\n\r\n",
		"220 mail.example ESMTP ready and waiting\r\n"}
	go func() {
		for _, greeting := range greetings {
			if conn, err := listener.Accept(); err == nil {
				conn.Write([]byte(greeting)) //nolint:errcheck // a test
				io.Copy(io.Discard, conn)    //nolint:errcheck // until the client has read it
				conn.Close()                 //nolint:errcheck // a test
			}
		}
	}()
	for _, scheme := range []string{"http", "http", "https"} {
		where := scheme + "://" + listener.Addr().String()
		err := gateOf(t, "http", texts("url", where)).Check(t.Context())
		wantClosed(t, err, false, where+": answers, but not with "+strings.ToUpper(scheme))
	}
}
