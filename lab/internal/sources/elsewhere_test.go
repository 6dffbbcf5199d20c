package sources

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFurtherSourcesAreServedUnderTheirURLs(t *testing.T) {
	charts, apps := t.TempDir(), t.TempDir()
	write(t, charts, map[string]string{"index.yaml": "apiVersion: v1\n"})
	write(t, apps, map[string]string{"a.yaml": "one"})
	find, err := Elsewhere(t.Context(), t.TempDir(), map[string]string{
		"https://charts.example.org/stable": charts, "https://git.example.org/me/apps.git": apps,
		"oci://ghcr.io/me/parts": apps},
		[]string{"https://git.example.org/me/none", "oci://ghcr.io/me/none"}, []string{"main"},
		[]string{">=1.2 <2"})
	if err != nil {
		t.Fatal(err)
	}
	listed := httptest.NewRecorder() // those among which Flux looks for a range
	find("ghcr.io", "/v2/me/parts/tags/list").ServeHTTP(listed,
		httptest.NewRequest(http.MethodGet, "/v2/me/parts/tags/list", nil))
	if !strings.Contains(listed.Body.String(), `"1.2.0"`) {
		t.Errorf("tags: %s", listed.Body)
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
		{"ghcr.io", "/v2/me/parts/manifests/v1.2"}:          200, // for everybody, whatever the tag
		{"ghcr.io", "/v2/me/none/manifests/v1.2"}:           404,
		{"ghcr.io", "/v2/me/other/manifests/v1.2"}:          0,
	} {
		if got := get(at[0], at[1]); got != want {
			t.Errorf("%s%s: %d, want %d", at[0], at[1], got, want)
		}
	}
}

func TestSomebodysCloneIsServedAsItIsAndStaysSo(t *testing.T) {
	clone := t.TempDir()
	write(t, clone, map[string]string{"a.yaml": "committed"})
	runGit(t, "-C", clone, "init", "--quiet", "--initial-branch=main")
	runGit(t, "-C", clone, "add", ".")
	runGit(t, "-C", clone, "commit", "--quiet", "--message", "first")
	runGit(t, "-C", clone, "tag", "v1")
	runGit(t, "-C", clone, "branch", "release")
	write(t, clone, map[string]string{"a.yaml": "changed", "b.yaml": "new"})
	state := func() string {
		return runGit(t, "-C", clone, "for-each-ref") + runGit(t, "-C", clone, "status", "--porcelain")
	}
	before := state()
	bare, folder := filepath.Join(t.TempDir(), "bare"), t.TempDir()
	runGit(t, "clone", "--quiet", "--bare", clone, bare)
	write(t, folder, map[string]string{"a.yaml": "plain"})
	find, err := Elsewhere(t.Context(), t.TempDir(), map[string]string{"https://x/clone": clone,
		"https://x/bare": bare, "https://x/folder": folder}, nil, []string{"trunk"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		find("x", r.URL.Path).ServeHTTP(w, r)
	}))
	defer server.Close()
	for name, want := range map[string][]string{"clone": {"heads/main", "heads/release", "tags/v1"},
		"bare": {"heads/main", "heads/release", "tags/v1"}, "folder": {"heads/trunk", "heads/main"}} {
		out := runGit(t, "ls-remote", server.URL+"/"+name) // without credentials
		for _, ref := range want {
			if !strings.Contains(out, "refs/"+ref) {
				t.Errorf("%s: no %s in %s", name, ref, out)
			}
		}
	}
	got, _, err := cloned(t, server.URL+"/clone", "")
	if err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(got, "a.yaml")); string(text) != "committed" {
		t.Errorf("%q, %v", text, err)
	}
	if after := state(); after != before {
		t.Errorf("the clone has changed from\n%s\nto\n%s", before, after)
	}
}
