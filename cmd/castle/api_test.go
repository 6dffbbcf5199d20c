//go:build integration

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// api calls the Kubernetes API of the rehearsed cluster:
//
//	api get PATH          prints an object
//	api wait PATH TEXT    waits until an object exists that matches the regular expression
//	api create PATH FILE  creates an object from a JSON file
//	api patch PATH FILE   applies a JSON merge patch to an object
//	api delete PATH       deletes an object
//	api hold KIND         holds the responses to all later writes of the kind
//	api caught            waits until a client waits for a held response
//	api letgo             stops holding; clients that already wait keep waiting
func api(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: api get|wait|create|patch|delete|hold|caught|letgo")
	}
	held, _ := ts.Value(holdKey{}).(*hold)
	switch args[0] {
	case "get":
		fmt.Fprintln(ts.Stdout(), string(ask(ts, http.MethodGet, args[1], nil)))
	case "wait":
		await(ts, args[1], regexp.MustCompile(args[2]))
	case "create":
		ask(ts, http.MethodPost, args[1], []byte(ts.ReadFile(args[2])))
	case "patch":
		ask(ts, http.MethodPatch, args[1], []byte(ts.ReadFile(args[2])))
	case "delete":
		ask(ts, http.MethodDelete, args[1], nil)
	case "hold":
		held.start(ts)
		select {
		case <-held.caught: // by an earlier hold
		default:
		}
		ask(ts, http.MethodPost, webhooks, held.webhook(ts, args[1]))
	case "caught":
		select {
		case <-held.caught:
		case <-time.After(2 * time.Minute):
			ts.Fatalf("nobody wrote what is held")
		}
	case "letgo":
		ask(ts, http.MethodDelete, webhooks+"/"+holdName, nil)
	default:
		ts.Fatalf("api: unknown %q", args[0])
	}
}

const (
	webhooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
	holdName = "hold.test"
)

func ask(ts *testscript.TestScript, method, path string, body []byte) []byte {
	answer, err := request(ts, method, path, body)
	ts.Check(err)
	return answer
}

// await reads an object until it matches.
func await(ts *testscript.TestScript, path string, want *regexp.Regexp) {
	last, err := request(ts, http.MethodGet, path, nil)
	for tick, end := time.Tick(200*time.Millisecond), time.After(2*time.Minute); !want.Match(last); {
		select {
		case <-tick:
			last, err = request(ts, http.MethodGet, path, nil)
		case <-end:
			ts.Fatalf("%s does not match %s: %s %v", path, want, last, err)
		}
	}
}

func request(ts *testscript.TestScript, method, path string, body []byte) ([]byte, error) {
	// A rehearsal has one API; the kubeconfig of every cluster points to it.
	configs, err := filepath.Glob(filepath.Join(ts.Getenv("CASTLE_STATE_DIR"), "*", "*", "kubeconfig"))
	ts.Check(err)
	if len(configs) == 0 {
		ts.Fatalf("no cluster has a kubeconfig")
	}
	config, err := clientcmd.BuildConfigFromFlags("", configs[0])
	ts.Check(err)
	client, err := rest.HTTPClientFor(config)
	ts.Check(err)
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	req, err := http.NewRequestWithContext(ctx, method, config.Host+path, bytes.NewReader(body))
	ts.Check(err)
	req.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		req.Header.Set("Content-Type", "application/merge-patch+json")
	}
	return answerOf(client.Do(req))
}

// hold is an admission webhook that never answers, so that what writes an object
// of some kind is stopped in the middle for as long as a test needs.
type hold struct {
	server *httptest.Server
	caught chan struct{}
}

type holdKey struct{}

func (h *hold) start(ts *testscript.TestScript) {
	if h.server != nil {
		return
	}
	h.caught = make(chan struct{}, 1)
	end := make(chan struct{})
	h.server = httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case h.caught <- struct{}{}:
		default: // one is enough
		}
		select {
		case <-r.Context().Done():
		case <-end:
		}
	}))
	ts.Defer(func() {
		close(end)
		h.server.Close()
	})
}

func (h *hold) webhook(ts *testscript.TestScript, kind string) []byte {
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.server.Certificate().Raw})
	body, err := json.Marshal(map[string]any{
		"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
		"metadata": map[string]any{"name": holdName},
		"webhooks": []any{map[string]any{
			"name": "hold.castle.test", "sideEffects": "None", "admissionReviewVersions": []string{"v1"},
			"timeoutSeconds": 30, "failurePolicy": "Fail",
			// castle's gates try things out, which is not writing, and only what a
			// Helm release owns is to be stopped: controllers write such objects too.
			"matchConditions": []any{
				map[string]any{"name": "written", "expression": "!has(request.dryRun) || !request.dryRun"},
				map[string]any{"name": "helm",
					"expression": "has(object.metadata.annotations) && 'meta.helm.sh/release-name' in " +
						"object.metadata.annotations"},
			},
			"clientConfig": map[string]any{"url": strings.TrimSuffix(h.server.URL, "/") + "/",
				"caBundle": authority},
			"rules": []any{map[string]any{
				"apiGroups": []string{"*"}, "apiVersions": []string{"*"}, "resources": []string{kind},
				"operations": []string{"CREATE", "UPDATE"},
			}},
		}},
	})
	ts.Check(err)
	return body
}
