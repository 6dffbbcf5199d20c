package operators

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ephemeral-castle/castle/lab/internal/operators/cluster"
	"github.com/ephemeral-castle/castle/lab/internal/operators/identity"
)

// A reviewer checks an admission request. Its error is the reason for a denial.
type reviewer func(ctx context.Context, request *admissionv1.AdmissionRequest) error

// A patcher returns a JSON patch for the object of an admission request, or nothing.
type patcher func(ctx context.Context, request *admissionv1.AdmissionRequest) ([]byte, error)

// webhook is the life cycle of one webhook server. The real one takes several steps that the Pod's
// status does not show: a certificate, the caBundle and then the socket. Before each step, the API
// server's calls fail in a different way.
type webhook struct {
	w        *cluster.View
	routes   Routes
	workload string // metallb-controller
	port     int    // of its container: 9443
	service  string // metallb-webhook-service
	secret   string // that keeps the certificate; "" for none
	// fill puts the authority where the API server looks for it.
	fill      fill
	reviewers map[string]reviewer // by path
	mutators  map[string]patcher  // likewise
	handler   http.Handler        // of a server that is no webhook, in place of both

	certified, listens time.Duration // how long after its Pod is ready, outside

	late    *cluster.Fault // it does not listen yet
	refuses *cluster.Fault // it listens, but answers 404 at
	refused string
	expired *cluster.Fault // it serves under an authority that has expired

	namespace string // where its Pod is ready; "" if nowhere
	server    *http.Server

	mu       sync.Mutex // guards what follows
	identity *identity.Identity
	outdated bool // its authority has expired
}

// look takes the steps that are due for a Pod that is ready in a namespace, or
// for none ("").
func (h *webhook) look(ctx context.Context, namespace string) error {
	if namespace != h.namespace {
		h.close()
		h.namespace = namespace
	}
	if namespace == "" {
		return nil
	}
	if err := h.identify(ctx); err != nil {
		return err
	}
	if !h.w.Passed(h.workload+" certified", h.certified) {
		return nil
	}
	if err := h.keep(ctx); err != nil {
		return err
	}
	if err := h.fill(ctx, namespace, h.identity.Authority); err != nil {
		return err
	}
	if h.server == nil {
		if !h.w.Passed(h.workload+" listens", h.listens-h.certified) || h.late.Holds() {
			return nil
		}
		if err := h.listen(); err != nil {
			return err
		}
	}
	// Whether anybody calls meanwhile or not, these begin and end in time.
	h.refuses.Holds()
	h.expired.Holds()
	return nil
}

// identify gives the webhook the certificate of its Secret, or a new one, and another one when a fault no
// longer wants it to serve under an authority that has expired.
func (h *webhook) identify(ctx context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	left, wanted := 365*24*time.Hour, h.expired.Comes()
	if h.identity != nil && h.outdated == wanted {
		return nil
	}
	if wanted {
		left = -24 * time.Hour
	}
	made, err := h.kept(ctx)
	if err == nil && (made == nil || wanted) {
		made, err = identity.New([]string{h.service + "." + h.namespace + ".svc"}, h.w.Now(), left)
	}
	if err != nil {
		return err
	}
	h.identity, h.outdated = made, wanted
	return nil
}

// kept is the identity in the Secret, as rotators find it when they start; nil if it is not good.
func (h *webhook) kept(ctx context.Context) (*identity.Identity, error) {
	if h.secret == "" {
		return nil, nil
	}
	secret, err := h.w.Typed.CoreV1().Secrets(h.namespace).Get(ctx, h.secret, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return identity.Of(secret.Data, h.w.Now()), nil
}

// present is the certificate at this moment.
func (h *webhook) present(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.identity == nil {
		return nil, net.ErrClosed
	}
	return &h.identity.Server, nil
}

// serving reports whether the webhook can answer the API server.
func (h *webhook) serving() bool { return h.server != nil }

func (h *webhook) key() string {
	return h.namespace + "/" + h.workload + ":" + strconv.Itoa(h.port)
}

func (h *webhook) close() {
	if h.server != nil {
		h.routes.Unregister(h.key())
		h.server.Close() //nolint:errcheck // nobody is left to answer
	}
	h.server, h.namespace = nil, ""
	h.mu.Lock()
	h.identity = nil
	h.mu.Unlock()
	h.w.Restart(h.workload + " certified")
	h.w.Restart(h.workload + " listens")
}

// keep stores the certificate in its Secret, as rotators do.
func (h *webhook) keep(ctx context.Context) error {
	if h.secret == "" {
		return nil
	}
	secrets := h.w.Typed.CoreV1().Secrets(h.namespace)
	data := h.identity.Data()
	have, err := secrets.Get(ctx, h.secret, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = secrets.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: h.secret},
			Data: data}, metav1.CreateOptions{})
		return err
	}
	if err != nil || bytes.Equal(have.Data["ca.crt"], h.identity.Authority) {
		return err
	}
	have.Data = data
	_, err = secrets.Update(ctx, have, metav1.UpdateOptions{})
	return err
}

func (h *webhook) listen() error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	for path, j := range h.reviewers {
		mux.Handle("POST "+path, h.unless(path, review(func(ctx context.Context,
			r *admissionv1.AdmissionRequest) ([]byte, error) {
			return nil, j(ctx, r)
		})))
	}
	for path, m := range h.mutators {
		mux.Handle("POST "+path, h.unless(path, review(m)))
	}
	h.server = &http.Server{
		Handler: cmp.Or(h.handler, http.Handler(mux)), ReadHeaderTimeout: 10 * time.Second,
		TLSConfig: &tls.Config{GetCertificate: h.present, MinVersion: tls.VersionTLS12},
		ErrorLog:  log.New(io.Discard, "", 0),
	}
	go h.server.ServeTLS(listener, "", "") //nolint:errcheck // ends with close
	h.routes.Register(h.key(), listener.Addr().String())
	return nil
}

// unless answers 404 where a handler is not registered yet.
func (h *webhook) unless(path string, handler http.Handler) http.Handler {
	if path != h.refused {
		return handler
	}
	return http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
		if h.refuses.Holds() {
			http.NotFound(out, in)
			return
		}
		handler.ServeHTTP(out, in)
	})
}

// review answers the API server as controller-runtime does; an error that is a status of its own is quoted as
// it is.
func review(m patcher) http.Handler {
	return http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
		var r admissionv1.AdmissionReview
		if err := json.NewDecoder(in.Body).Decode(&r); err != nil || r.Request == nil {
			http.Error(out, "no AdmissionReview", http.StatusBadRequest)
			return
		}
		answer := &admissionv1.AdmissionResponse{UID: r.Request.UID, Allowed: true}
		patch, err := m(in.Context(), r.Request)
		if len(patch) > 0 {
			kind := admissionv1.PatchTypeJSONPatch
			answer.Patch, answer.PatchType = patch, &kind
		}
		if err != nil {
			answer.Allowed = false
			answer.Result = &metav1.Status{Message: err.Error(), Reason: metav1.StatusReasonForbidden,
				Code: http.StatusForbidden}
			if own := (apierrors.APIStatus)(nil); errors.As(err, &own) {
				status := own.Status()
				answer.Result = &status
			}
		}
		r.Request, r.Response = nil, answer
		out.Header().Set("Content-Type", "application/json")
		json.NewEncoder(out).Encode(r) //nolint:errcheck // whoever hung up wants no answer
	})
}

// anything accepts every object.
func anything(context.Context, *admissionv1.AdmissionRequest) error { return nil }
