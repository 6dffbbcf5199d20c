package gates_test

import (
	"crypto/tls"
	"encoding/json"
	"io"
	"log"
	"net"
	"net/http"
	"sync/atomic"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ephemeral-castle/castle/lab/internal/kubernetes"
)

// guard is an operator's webhook process, behind the Service and the Pods of the same name. A test
// sets its verdict.
type guard struct {
	review atomic.Pointer[func(name string) *admissionv1.AdmissionResponse]
}

func (g *guard) judges(how func(name string) *admissionv1.AdmissionResponse) { g.review.Store(&how) }

func allows(string) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{Allowed: true}
}

// denies returns a rejection with a code, as admission libraries do: 403 for a verdict, 500 for an
// error.
func denies(code int32, message string) func(string) *admissionv1.AdmissionResponse {
	return func(string) *admissionv1.AdmissionResponse {
		return &admissionv1.AdmissionResponse{Result: &metav1.Status{Code: code, Message: message}}
	}
}

func deniesBad(name string) *admissionv1.AdmissionResponse {
	if name == "bad" {
		return denies(http.StatusForbidden, "bad is no good name")(name)
	}
	return allows(name)
}

// listen starts to serve for the Pods of a namespace's guard, with a certificate, and returns a
// function that stops it.
func (g *guard) listen(t testing.TB, p *plane, namespace string,
	certificate kubernetes.KeyPair) (end func()) {
	t.Helper()
	pair, err := tls.X509KeyPair(certificate.Certificate, certificate.Key)
	check(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	// tests provoke failed handshakes
	s := &http.Server{Handler: g, ErrorLog: log.New(io.Discard, "", 0)}
	done := make(chan error, 1)
	go func() { done <- s.Serve(tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{pair}})) }()
	p.cluster.Routes.Register(namespace+"/guard:9443", l.Addr().String())
	return func() {
		p.cluster.Routes.Unregister(namespace + "/guard:9443")
		check(t, s.Close())
		<-done
	}
}

func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer := g.review.Load()
	review := admissionv1.AdmissionReview{}
	if err := json.NewDecoder(r.Body).Decode(&review); answer == nil || err != nil || review.Request == nil {
		http.NotFound(w, r) // no handler is registered
		return
	}
	review.Response = (*answer)(review.Request.Name)
	review.Response.UID = review.Request.UID
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(review) //nolint:errcheck // an API server that is gone needs no answer
}
