package kube

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// A diagnosis has bounds, so that a broken cluster costs little more time and
// nobody's disk.
const (
	inquiryTime = 10 * time.Second // for everything around one gate
	firstAnswer = 4 * time.Second  // for the first question: an API that hangs is a finding
	inquiryRoom = 4 << 20          // bytes of all files of one gate
	fileRoom    = 256 << 10        // bytes of one file
)

// inquiry collects what may explain one closed gate. What cannot be read is
// noted and passed over: half of an explanation is better than none.
type inquiry struct {
	a        *api
	target   gate.Target // for other ways to the same cluster
	files    map[string][]byte
	room     int
	cause    string
	look     string // the command to look further
	release  string
	missed   []string // what could not be read
	private  []string // what the cluster's Secrets hold
	sealed   bool     // private is known, so that logs can be shown without it
	heard    map[string][]happening
	machines []corev1.Node
	deaf     map[string]bool // nodes whose kubelet does not hand out logs
}

// diagnose makes a gate's Diagnose. ask looks round in the order in which a
// person would: the first cause that it finds is the one that is told.
func (c *cluster) diagnose(look string, ask func(context.Context, *inquiry)) func(context.Context) gate.Diagnosis {
	return func(caller context.Context) gate.Diagnosis {
		a, err := c.open()
		if err != nil {
			return gate.Diagnosis{Cause: err.Error()}
		}
		ctx, stop := context.WithTimeout(caller, inquiryTime)
		defer stop()
		q := &inquiry{a: a, files: map[string][]byte{}, room: inquiryRoom, look: look, heard: map[string][]happening{}, deaf: map[string]bool{}}
		if err := q.readPrivate(ctx, min(c.attempt, firstAnswer)); err != nil && !answered(err) {
			return gate.Diagnosis{Cause: silence(a.host, err), Look: lookAtAPI}
		}
		q.nodes(ctx)
		ask(ctx, q)
		return q.conclude()
	}
}

// answered reports whether an error is the API's own answer, and no silence.
func answered(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status)
}

// conclude hides the Secrets' data in everything that was found.
func (q *inquiry) conclude() gate.Diagnosis {
	if len(q.missed) > 0 {
		q.keep("not-read.txt", []byte(strings.Join(q.missed, "\n")+"\n"))
	}
	hide := q.hider()
	for name, data := range q.files {
		q.files[name] = []byte(hide(string(data)))
	}
	return gate.Diagnosis{Files: q.files, Cause: hide(q.cause), Look: q.look, Release: q.release}
}

// because tells a cause, unless a better one is known already. look, if given,
// leads closer to it than the gate's own command.
func (q *inquiry) because(cause string, look ...string) {
	if q.cause != "" || cause == "" {
		return
	}
	q.cause = cause
	for _, closer := range look {
		q.look = closer
	}
}

// miss notes what could not be read.
func (q *inquiry) miss(what string, err error) {
	q.missed = append(q.missed, what+": "+explain(q.a.host, err).Error())
}

// keep takes a file, cut to its room: of a text that is too long the end is
// what matters.
func (q *inquiry) keep(name string, data []byte) {
	if _, known := q.files[name]; known || len(data) == 0 {
		return
	}
	if over := len(data) - fileRoom; over > 0 {
		data = append(fmt.Appendf(nil, "… %d bytes left out …\n", over), data[over:]...)
	}
	if q.room -= len(data); q.room < 0 {
		return
	}
	q.files[name] = data
}

// get reads an object and keeps it. Without an error nil means that it does not exist.
func (q *inquiry) get(ctx context.Context, s selection, kind string) (*unstructured.Unstructured, bool) {
	object, err := q.a.get(ctx, s.in, s.namespace, s.name)
	switch {
	case apierrors.IsNotFound(err):
		return nil, true
	case err != nil:
		q.miss(titled(kind, s.namespace, s.name), err)
		return nil, false
	}
	q.object(object)
	return object, true
}

// list reads objects and keeps the first few of them.
func (q *inquiry) list(ctx context.Context, s selection, kind string) []unstructured.Unstructured {
	objects, err := q.a.list(ctx, s.in, s.namespace, s.labels)
	if err != nil {
		q.miss(strings.ToLower(kind)+"s"+in(s.namespace), err)
		return nil
	}
	for i := range objects {
		if objects[i].GetKind() == "" {
			objects[i].SetKind(kind) // lists of some APIs leave it out
		}
		if i < 2*most {
			q.object(&objects[i])
		}
	}
	return objects
}

// names are the words of the files' names: what is called so is no secret.
func (q *inquiry) names() string {
	return strings.Join(slices.Sorted(maps.Keys(q.files)), "\n")
}
