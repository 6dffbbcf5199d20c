package infisical

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/zclconf/go-cty/cty"

	emulator "github.com/ephemeral-castle/castle/internal/emulator/infisical"
	"github.com/ephemeral-castle/castle/lab/internal/providers/plugin"
	"github.com/ephemeral-castle/castle/lab/internal/providers/plugin/plugintest"
)

func server(t *testing.T, wrap func(http.Handler) http.Handler) (*emulator.Server, *provider) {
	t.Helper()
	s := emulator.New(emulator.Config{ClientID: "machine", ClientSecret: "open sesame",
		Folders: []emulator.Folder{{Workspace: "p1", Environment: "prod", Path: "/blue"}}})
	listener := httptest.NewServer(wrap(s.Handler()))
	t.Cleanup(listener.Close)
	p := &provider{}
	err := p.configure(t.Context(), plugin.Values{"host": cty.StringVal(listener.URL),
		"client_id": cty.StringVal("machine"), "client_secret": cty.StringVal("open sesame")})
	if err != nil {
		t.Fatal(err)
	}
	return s, p
}

func plain(h http.Handler) http.Handler { return h }

func resource(t *testing.T, p *provider) *plugintest.Resource {
	t.Helper()
	return plugintest.New(t,
		plugin.Provider{Resources: map[string]plugin.Resource{"infisical_secret": p.secret()}},
		"infisical_secret")
}

func config(more plugin.Values) plugin.Values {
	v := plugin.Values{"workspace_id": cty.StringVal("p1"), "env_slug": cty.StringVal("prod"),
		"folder_path": cty.StringVal("/blue"), "name": cty.StringVal("K")}
	for name, x := range more {
		v[name] = x
	}
	return v
}

func TestABusyServerIsAskedAgain(t *testing.T) {
	s, p := server(t, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Retry-After", "0")
			h.ServeHTTP(w, r)
		})
	})
	s.Throttle(2, 0)
	r := resource(t, p)
	if diagnostics := r.Apply(config(plugin.Values{"value": cty.StringVal("x")})); len(diagnostics) > 0 {
		t.Fatal(diagnostics[0].Detail)
	}
	r.Settled(config(plugin.Values{"value": cty.StringVal("x")}))
}

func TestABrokenServerIsNotAskedAgain(t *testing.T) {
	asked := 0
	_, p := server(t, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.Contains(r.URL.Path, "/secrets/") {
				asked++
				http.Error(w, "<html>bad gateway</html>", http.StatusBadGateway)
				return
			}
			h.ServeHTTP(w, r)
		})
	})
	diagnostics := resource(t, p).Apply(config(plugin.Values{"value": cty.StringVal("x")}))
	if asked != 1 || len(diagnostics) != 1 || !strings.Contains(diagnostics[0].Detail, "[status-code=502]") {
		t.Errorf("asked %d times: %v", asked, diagnostics)
	}
}

func TestAWriteOnlyValueNeverReachesTheState(t *testing.T) {
	s, p := server(t, plain)
	r := resource(t, p)
	first := config(plugin.Values{"value_wo": cty.StringVal("hush"), "value_wo_version": cty.NumberIntVal(1)})
	if diagnostics := r.Apply(first); len(diagnostics) > 0 {
		t.Fatal(diagnostics[0].Detail)
	}
	r.Settled(first)
	if got := s.Secrets()[0].Value; got != "hush" {
		t.Errorf("stored %q", got)
	}
	if strings.Contains(r.State.GoString(), "hush") {
		t.Error("the state holds the value")
	}
	same := config(plugin.Values{"value_wo": cty.StringVal("other"), "value_wo_version": cty.NumberIntVal(1)})
	if plan, _ := r.Plan(same); plan.Changes() {
		t.Error("a write-only value is sent again although its version is the same")
	}
	second := config(plugin.Values{"value_wo": cty.StringVal("other"),
		"value_wo_version": cty.NumberIntVal(2)})
	if diagnostics := r.Apply(second); len(diagnostics) > 0 || s.Secrets()[0].Value != "other" {
		t.Errorf("a new version: %v", diagnostics)
	}
}

func TestARenamedSecretStaysTheSame(t *testing.T) {
	s, p := server(t, plain)
	r := resource(t, p)
	r.Apply(config(plugin.Values{"value": cty.StringVal("x")}))
	id := s.Secrets()[0].ID
	if diagnostics := r.Apply(config(plugin.Values{"value": cty.StringVal("x"),
		"name": cty.StringVal("L")})); len(diagnostics) > 0 {
		t.Fatal(diagnostics[0].Detail)
	}
	if all := s.Secrets(); len(all) != 1 || all[0].Key != "L" || all[0].ID != id {
		t.Errorf("secrets: %+v", all)
	}
	if r.State.GetAttr("name").AsString() != "L" {
		t.Error("the state has the old name")
	}
}
