package behaviours_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ephemeral-castle/castle/lab/charts"
	"github.com/ephemeral-castle/castle/lab/internal/operators"
	"github.com/ephemeral-castle/castle/lab/internal/operators/upstream"
	"github.com/ephemeral-castle/castle/lab/internal/sources"
)

// Where `make real` puts the controllers.
const built = "../../bin/" + upstream.Folder

// observer is the environment variable with the file for the observations of a process that holds a plane.
const observer, programs = "CASTLE_BEHAVIOURS", "CASTLE_BEHAVIOURS_PROGRAMS"

func TestTheDoublesBehaveAsTheControllersDo(t *testing.T) {
	if os.Getenv(observer) != "" {
		observe(t)
		return
	}
	t.Parallel()
	compare(t, observed(t, ""), differences())
}

func TestTheControllersBehaveAsTheTableSays(t *testing.T) {
	if os.Getenv(observer) != "" {
		observe(t)
		return
	}
	folder, err := filepath.Abs(built)
	check(t, err)
	if !upstream.Built(folder) {
		t.Skip("the real controllers are not built (make real)")
	}
	t.Parallel()
	compare(t, observed(t, folder), nil)
}

// observed runs this test in a process of its own and returns what it saw, by behaviour; "" is as expected.
func observed(t *testing.T, controllers string) map[string]string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "seen.json")
	me, err := os.Executable()
	check(t, err)
	c := exec.CommandContext(t.Context(), me, "-test.run=^"+t.Name()+"$",
		fmt.Sprintf("-test.v=%t", testing.Verbose()))
	// MetalLB's webhook has the same port everywhere, so it needs a network of its own.
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() != 0 {
		c.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		c.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}}
		c.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}}
	}
	c.Env = append(os.Environ(), observer+"="+file, programs+"="+controllers)
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	content, err := os.ReadFile(file)
	check(t, err)
	seen := map[string]string{}
	check(t, json.Unmarshal(content, &seen))
	return seen
}

func compare(t *testing.T, seen map[string]string, allowed map[string]string) {
	t.Helper()
	for name, got := range seen {
		switch reason, listed := allowed[name]; {
		case got != "" && !listed:
			t.Errorf("%s: %s", name, got)
		case got == "" && listed:
			t.Errorf("%s: there is no difference any more: %s", name, reason)
		}
	}
}

// observe runs the controllers, or the doubles, on one repository and writes what it sees.
func observe(t *testing.T) {
	p := begin(t)
	controllers := os.Getenv(programs)
	var definitions map[string][]byte
	if controllers != "" {
		var err error
		definitions, err = upstream.Definitions(controllers)
		check(t, err)
	}
	p.install(t, definitions, "fluxcd-community.github.io", "/helm-charts/flux2-2.18.3.tgz", "crds",
		"controllers")
	p.install(t, definitions, "metallb.github.io", "/metallb/metallb-0.15.3.tgz", "crds", "controller",
		"webhook")
	fleet := t.TempDir()
	for _, b := range behaviours() {
		for name, text := range b.files {
			write(t, filepath.Join(fleet, b.name), map[string]string{name: text})
		}
	}
	git, err := sources.NewGit(t.Context(), t.TempDir(), fleet, []string{"main"})
	check(t, err)
	repositories, err := charts.New(charts.Options{Speed: 1000})
	check(t, err)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasPrefix(r.URL.Path, "/me/fleet"):
			git.ServeHTTP(w, r)
		case strings.HasPrefix(r.URL.Path, "/charts/"):
			r.URL.Path = strings.TrimPrefix(r.URL.Path, "/charts")
			repositories.Handler("traefik.github.io").ServeHTTP(w, r)
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(server.Close)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		operators.Run(ctx, operators.Config{ //nolint:errcheck // it ends with the test
			REST: p.cluster.REST, Routes: p.cluster.Routes, Speed: 1000,
			Dir: p.dir, Controllers: controllers, Logs: filepath.Join(p.dir, "logs"),
			Log: func(operator string, err error) { t.Logf("operator %s: %v", operator, err) }})
	}()
	t.Cleanup(func() { stop(); <-ended })

	p.apply(t, strings.ReplaceAll(common, "SERVER", server.URL))
	for _, b := range behaviours() {
		p.apply(t, strings.NewReplacer("SERVER", server.URL, "NAME", b.name).Replace(b.text()))
	}
	p.until = time.Now().Add(patience)
	seen := map[string]string{}
	for _, b := range behaviours() {
		seen[b.name] = p.differs(t, b)
	}
	for _, b := range behaviours() {
		if b.then != nil && seen[b.name] == "" {
			seen[b.name] = b.then(t, p, filepath.Join(fleet, b.name))
		}
	}
	p.balance(t, seen)
	content, err := json.Marshal(seen)
	check(t, err)
	check(t, os.WriteFile(os.Getenv(observer), content, 0o600))
}

// patience is how long all behaviours together may take, and each of what follows: they run side by side.
const patience = 2 * time.Minute

// differs is what of a behaviour is not as expected; "" for nothing.
func (p *plane) differs(t *testing.T, b behaviour) (why string) {
	t.Helper()
	want := regexp.MustCompile("^(?s:" + b.want + ")$")
	within(max(time.Second, time.Until(p.until)), func() bool {
		o := p.get(t, b.version(), b.kindOr("Kustomization"), b.name)
		why = fmt.Sprintf("got  %s\nwant %s", readiness(o), b.want)
		if !want.MatchString(readiness(o)) {
			return false
		}
		for _, name := range b.made {
			if p.get(t, "v1", "ConfigMap", name) == nil {
				why = "it makes no ConfigMap " + name
				return false
			}
		}
		why = ""
		return true
	})
	for _, name := range b.absent {
		if p.get(t, "v1", "ConfigMap", name) != nil {
			return "it makes the ConfigMap " + name
		}
	}
	return why
}

// within reports whether something became true in time.
func within(most time.Duration, is func() bool) bool {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for end := time.After(most); ; {
		if is() {
			return true
		}
		select {
		case <-end:
			return false
		case <-tick.C:
		}
	}
}

var revision = regexp.MustCompile(`sha1:[0-9a-f]{40}`)

// readiness is the condition Ready, as "False Reason: message", and Stalled behind it if it is set.
func readiness(o *unstructured.Unstructured) string {
	if o == nil {
		return "absent"
	}
	all, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	text, stalled := "none", ""
	for _, one := range all {
		c := one.(map[string]any)
		switch c["type"] {
		case "Ready":
			text = fmt.Sprintf("%v %v: %v", c["status"], c["reason"], c["message"])
		case "Stalled":
			stalled = fmt.Sprintf("; stalled %v", c["reason"])
		}
	}
	return revision.ReplaceAllString(text, "sha1:X") + stalled
}

// removed expects a ConfigMap to go.
func removed(t *testing.T, p *plane, name string) string {
	if !within(patience, func() bool { return p.get(t, "v1", "ConfigMap", name) == nil }) {
		return "the ConfigMap " + name + " remains"
	}
	return ""
}

// request has Flux look again at the repository, and then at a Kustomization.
func (p *plane) request(t *testing.T, name string) {
	t.Helper()
	for _, o := range []*unstructured.Unstructured{p.get(t, sourceAPI, "GitRepository", "fleet"),
		p.get(t, kustomizeAPI, "Kustomization", name)} {
		api, err := p.api(o.GroupVersionKind(), namespace)
		check(t, err)
		_, err = api.Patch(t.Context(), o.GetName(), "application/merge-patch+json", fmt.Appendf(nil,
			`{"metadata":{"annotations":{"reconcile.fluxcd.io/requestedAt":%q}}}`, time.Now().String()),
			metav1.PatchOptions{})
		check(t, err)
	}
}
