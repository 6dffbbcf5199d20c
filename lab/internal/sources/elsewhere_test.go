package sources

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestFurtherSourcesAreServedUnderTheirURLs(t *testing.T) {
	charts, apps := t.TempDir(), t.TempDir()
	write(t, charts, map[string]string{"index.yaml": "apiVersion: v1\n"})
	write(t, apps, map[string]string{"a.yaml": "one"})
	find, err := Elsewhere(t.Context(), t.TempDir(), map[string]string{
		"https://charts.example.org/stable": charts, "https://git.example.org/me/apps.git": apps},
		[]string{"https://git.example.org/me/none"}, []string{"main"})
	if err != nil {
		t.Fatal(err)
	}
	get := func(host, path string) int {
		h := find(host, path)
		if h == nil {
			return 0
		}
		r := httptest.NewRequest(http.MethodGet, path+"?service=git-upload-pack", nil)
		r.SetBasicAuth("git", "token")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	for at, want := range map[[2]string]int{
		{"charts.example.org", "/stable/index.yaml"}:        200,
		{"charts.example.org", "/stable/none.tgz"}:          404,
		{"charts.example.org", "/other/index.yaml"}:         0,
		{"git.example.org", "/me/apps/info/refs"}:           200,
		{"git.example.org", "/me/apps.git/info/refs"}:       200,
		{"git.example.org", "/me/apps-of-others/info/refs"}: 0,
		{"git.example.org", "/me/none/info/refs"}:           404,
	} {
		if got := get(at[0], at[1]); got != want {
			t.Errorf("%s%s: %d, want %d", at[0], at[1], got, want)
		}
	}
}
