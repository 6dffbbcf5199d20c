package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ephemeral-castle/castle/internal/gate"
)

func TestRetryRepeatsWhatPasses(t *testing.T) {
	nodes := schema.GroupResource{Resource: "nodes"}
	for name, tt := range map[string]struct {
		err    error
		passes bool
	}{
		"nobody listens":          {fmt.Errorf("get: %w", syscall.ECONNREFUSED), true},
		"another has changed it":  {apierrors.NewConflict(nodes, "w-01", errors.New("changed")), true},
		"a webhook is away":       {apierrors.NewInternalError(errors.New("failed calling webhook")), true},
		"admission is not ready":  {apierrors.NewForbidden(nodes, "w-01", errors.New("retry later")), true},
		"the function waits":      {&gate.Finding{Kind: gate.Waits, Text: "not yet"}, true},
		"it does not exist":       {NotFound("Node", "", "w-01"), false},
		"the object is not valid": {apierrors.NewInvalid(schema.GroupKind{Kind: "Node"}, "w-01", nil), false},
		"the user may not": {apierrors.NewForbidden(nodes, "w-01",
			errors.New(`User "x" cannot get resource "nodes"`)), false},
	} {
		synctest.Test(t, func(t *testing.T) {
			attempts := 0
			c := &Cluster{Attempt: DefaultAttempt, open: func() (*API, error) { return &API{}, nil }}
			err := c.Retry(t.Context(), func(context.Context, *API) error {
				if attempts++; attempts < 4 {
					return tt.err
				}
				return nil
			})
			if (err == nil) != tt.passes || (attempts == 4) != tt.passes {
				t.Errorf("%s: %d attempts, %v", name, attempts, err)
			}
		})
	}
}

func TestRetryGivesUpWithTheLastAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &API{Host: "vip", HTTP: http.DefaultClient}
		c := &Cluster{Attempt: DefaultAttempt, open: func() (*API, error) { return api, nil }}
		began := time.Now()
		err := c.Retry(t.Context(), func(ctx context.Context, _ *API) error {
			<-ctx.Done()
			return ctx.Err()
		})
		if text := fmt.Sprint(err); text != "kubernetes API at vip: no answer within 10s" ||
			time.Since(began) > outage {
			t.Errorf("after %s: %s", time.Since(began), text)
		}
		stop := errors.New("interrupt signal received")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(3*time.Second, func() { cancel(stop) })
		refused := func(context.Context, *API) error { return syscall.ECONNREFUSED }
		if err := c.Retry(ctx, refused); err != stop {
			t.Errorf("the caller stops: %v", err)
		}
	})
}
