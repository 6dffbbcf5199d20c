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
// and the control plane's Pods.
func (q *inquiry) health(ctx context.Context, _ gate.Values) {
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
	q.pods(ctx, "kube-system", "tier=control-plane")
}
