package infisical

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/zclconf/go-cty/cty"

	emulator "github.com/ephemeral-castle/castle/internal/emulator/infisical"
	"github.com/ephemeral-castle/castle/internal/gate"
)

const password = "open sesame"

func blue() map[string]string {
	return map[string]string{"project_id": "p1", "environment": "prod", "folder": "/blue",
		"name": "KUBECONFIG_CONTENT"}
}

func serve(t *testing.T, handler http.Handler) string {
	t.Helper()
	s := httptest.NewServer(handler)
	t.Cleanup(s.Close)
	return s.URL
}

func vault() *emulator.Server {
	v := emulator.New(emulator.Config{ClientID: "castle", ClientSecret: password})
	v.SetSecret(emulator.Folder{Workspace: "p1", Environment: "prod", Path: "/blue"}, "OTHER", "x")
	return v
}

// ask asks once, as somebody with these credentials.
func ask(t *testing.T, host string, arguments map[string]string, secret string) (bool, error) {
	t.Helper()
	values := gate.Values{"host": cty.StringVal(host)}
	for name, value := range arguments {
		values[name] = cty.StringVal(value)
	}
	kind := ExistsTypes()[0]
	for name, attribute := range kind.Attributes {
		if attribute.Required && !values.Has(name) {
			t.Fatalf("%s is required", name)
		}
	}
	environ := []string{"INFISICAL_UNIVERSAL_AUTH_CLIENT_ID=castle",
		"INFISICAL_UNIVERSAL_AUTH_CLIENT_SECRET=" + secret}
	if secret == "" {
		environ = nil
	}
	q, err := kind.New(kind.Name, gate.Target{Environ: environ}, values)
	if err != nil {
		t.Fatal(err)
	}
	return q.Lookup(t.Context())
}

func TestASecretExistsOrNot(t *testing.T) {
	v := vault()
	host := serve(t, v.Handler())
	if there, err := ask(t, host, blue(), password); there || err != nil {
		t.Errorf("a secret that is not there: %v, %v", there, err)
	}
	v.SetSecret(emulator.Folder{Workspace: "p1", Environment: "prod", Path: "/blue"}, "KUBECONFIG_CONTENT",
		"x")
	if there, err := ask(t, host+"/", blue(), password); !there || err != nil {
		t.Errorf("a secret that is there: %v, %v", there, err)
	}
}

func TestARedirectIsNotFollowed(t *testing.T) {
	followed := false
	other := serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { followed = true }))
	host := serve(t, http.RedirectHandler(other+"/login", http.StatusTemporaryRedirect))
	_, err := ask(t, host, blue(), password)
	if err == nil || !gate.IsPermanent(err) || !strings.Contains(err.Error(), "it redirects to "+other) {
		t.Errorf("got %v", err)
	}
	if followed {
		t.Error("the machine identity was sent to the other server")
	}
}

func TestAnErrorIsNotAnAbsentSecret(t *testing.T) {
	forbidden := vault()
	forbidden.Forbid("p1")
	page := http.HandlerFunc(func(w http.ResponseWriter,
		_ *http.Request) {
		w.Write([]byte("<html>"))
	}) //nolint:errcheck // a test
	but := func(name, value string) map[string]string {
		all := blue()
		all[name] = value
		return all
	}
	for name, c := range map[string]struct {
		handler   http.Handler
		arguments map[string]string
		secret    string
		want      []string
	}{
		"wrong credentials": {vault().Handler(), blue(), "guess", []string{"Invalid credentials (401)",
			"INFISICAL_UNIVERSAL_AUTH_CLIENT_ID"}},
		"no credentials": {vault().Handler(), blue(), "",
			[]string{"set INFISICAL_UNIVERSAL_AUTH_CLIENT_ID"}},
		"another service": {http.NotFoundHandler(), blue(), password,
			[]string{"404", "this is not Infisical"}},
		"somebody's page": {page, blue(), password, []string{"this is not Infisical"}},
		"wrong project": {vault().Handler(), but("project_id", "p2"), password,
			[]string{"Project with ID 'p2' not found", "correct the name"}},
		"wrong environment": {vault().Handler(), but("environment", "dev"), password,
			[]string{"environment with slug 'dev' not found"}},
		"no folder": {vault().Handler(), but("folder", "/green"), password,
			[]string{"Folder with path '/green'", "create the folder"}},
		"no permission": {forbidden.Handler(), blue(), password,
			[]string{"(403)", "give the machine identity a role"}},
	} {
		t.Run(name, func(t *testing.T) {
			there, err := ask(t, serve(t, c.handler), c.arguments, c.secret)
			if there || err == nil || !gate.IsPermanent(err) {
				t.Fatalf("%v, %v (permanent: %v)", there, err, gate.IsPermanent(err))
			}
			for _, want := range append(c.want, "secret KUBECONFIG_CONTENT in folder") {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v\nlacks %q", err, want)
				}
			}
			if strings.Contains(err.Error(), password) || strings.Contains(err.Error(), "guess") {
				t.Errorf("the credentials are in the error: %v", err)
			}
		})
	}
}

func TestErrorsOfABusyServerAreNotPermanent(t *testing.T) {
	v := vault()
	host := serve(t, v.Handler())
	v.Throttle(1, time.Second)
	if _, err := ask(t, host, blue(), password); err == nil || gate.IsPermanent(err) {
		t.Errorf("throttled: %v", err)
	}
	if _, err := ask(t, "http://127.0.0.1:1", blue(), password); err == nil || gate.IsPermanent(err) ||
		!strings.Contains(err.Error(), "refused") {
		t.Errorf("nobody there: %v", err)
	}
	s := secret{client: newClient(host, []string{"INFISICAL_UNIVERSAL_AUTH_CLIENT_ID=castle",
		"INFISICAL_UNIVERSAL_AUTH_CLIENT_SECRET=" + password})}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, err := s.exists(ctx); err == nil {
		t.Error("an interrupt is no answer")
	}
}

func TestTheIdentityTellsWhenItsClientSecretExpires(t *testing.T) {
	made := time.Date(2026, 11, 1, 8, 0, 0, 0, time.UTC)
	environ := []string{"INFISICAL_UNIVERSAL_AUTH_CLIENT_ID=castle",
		"INFISICAL_UNIVERSAL_AUTH_CLIENT_SECRET=" + password}
	for name, test := range map[string]struct {
		config  emulator.Config
		expires time.Time
		failure string
	}{
		"a year":       {emulator.Config{Reads: true, TTL: 365 * 24 * time.Hour}, made.AddDate(1, 0, 0), ""},
		"for ever":     {emulator.Config{Reads: true}, time.Time{}, ""},
		"may not read": {emulator.Config{}, time.Time{}, "may not read identities"},
	} {
		t.Run(name, func(t *testing.T) {
			test.config.ClientID, test.config.ClientSecret, test.config.Made = "castle", password, made
			folder := Folder{Host: serve(t, emulator.New(test.config).Handler())}
			issued, expires, err := folder.Identity(t.Context(), environ)
			if test.failure != "" {
				if err == nil || !strings.Contains(err.Error(), test.failure) {
					t.Errorf("got %v", err)
				}
				return
			}
			if err != nil || !issued.Equal(made) || !expires.Equal(test.expires) {
				t.Errorf("got %s to %s, %v", issued, expires, err)
			}
		})
	}
}
