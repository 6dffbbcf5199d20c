package kube

import (
	"context"
	"io"
	"net/http"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// lookAtAPI is the command that asks the API for its own readiness.
const lookAtAPI = "kubectl get --raw '/readyz?verbose'"

// health explains an API that is not ready: what it says of each of its checks,
// each control plane's own, and the control plane's Pods.
func (q *inquiry) health(ctx context.Context, v gate.Values) {
	q.checks(ctx)
	var endpoints []string
	if err := v.Decode("endpoints", &endpoints); err != nil {
		return
	}
	for _, endpoint := range endpoints {
		q.door(ctx, endpoint)
	}
	q.pods(ctx, "kube-system", "tier=control-plane")
}

// door asks one control plane's own API. Its Kubernetes cannot be asked for the
// reason, but its Talos can.
func (q *inquiry) door(ctx context.Context, endpoint string) {
	a, err := open(q.target.Kubeconfig, endpoint)
	if err != nil {
		return
	}
	ctx, stop := context.WithTimeout(ctx, firstAnswer)
	defer stop()
	if err := ready(ctx, a); err != nil {
		q.because(silence(a.host, err), "talosctl -n "+a.server.Hostname()+" containers -k")
	}
}

// checks keeps what the API says of each of its own checks.
func (q *inquiry) checks(ctx context.Context) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, q.a.server.JoinPath("readyz").String()+"?verbose", http.NoBody)
	if err != nil {
		q.miss("/readyz", err)
		return
	}
	response, err := q.a.http.Do(request)
	if err != nil {
		q.miss("/readyz", err)
		return
	}
	defer response.Body.Close() //nolint:errcheck // it was only read
	body, err := io.ReadAll(io.LimitReader(response.Body, largest))
	if err != nil {
		q.miss("/readyz", err)
	}
	q.keep("readyz.txt", body)
	if failed := failing(string(body)); failed != "" {
		q.because("the API server answers, but these of its own checks fail: " + failed)
	}
}
