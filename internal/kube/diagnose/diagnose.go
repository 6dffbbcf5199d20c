// Package diagnose explains a closed gate. It starts from the finding of the gate's own check (package
// gates), collects evidence around it (objects, events, Pods, logs), and names the first known cause in the
// order in which a person would look. Known causes stand in one table (causes.go). A diagnosis reads and
// changes nothing, has bounds in time and size, and never shows a Secret's data. It notes and skips
// unreadable objects: half of an explanation is better than none.
package diagnose

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube/client"
	"github.com/ephemeral-castle/castle/internal/kube/gates"
)

const (
	totalTime   = 10 * time.Second // for everything around one gate
	checkTime   = 5 * time.Second  // for the gate's own check: the dry run of a webhook may hang
	firstAnswer = 4 * time.Second  // for the first request: an API that hangs is a finding
)

// diagnosis is the work on one closed gate.
type diagnosis struct {
	api      *client.API
	target   gate.Target // for other addresses of the same cluster
	evidence *evidence
	read     []client.Object // what the gate's check has read

	cause, about, look, release string // as in gate.Diagnosis
	kind                        gate.Kind
}

// Gate makes the Diagnose of a gate of the type with these arguments.
func Gate(typeName string, target gate.Target, v gate.Values) func(context.Context, error) gate.Diagnosis {
	e := explanations[typeName]
	return func(ctx context.Context, last error) gate.Diagnosis {
		address, look := v.String("address"), e.look(v)
		return run(ctx, target, address, look, last, func(ctx context.Context, d *diagnosis) {
			found := d.check(ctx, typeName, v)
			if found != nil && !isAnswer(found) && isAnswer(last) {
				found = last // an API under load may not answer within the time of a diagnosis
			}
			e.collect(ctx, d, v, found)
			d.conclude(ctx, found)
		})
	}
}

// check runs the gate's own check. What it reads is evidence.
func (d *diagnosis) check(ctx context.Context, typeName string, v gate.Values) error {
	check, err := gates.CheckOf(typeName, v)
	if err != nil || check == nil {
		return err
	}
	recording := *d.api
	recording.Read = func(_ client.Selection, objects ...client.Object) {
		d.read = append(d.read, objects...)
		d.evidence.objects(objects)
	}
	ctx, stop := context.WithTimeout(ctx, checkTime)
	defer stop()
	return check(ctx, &recording)
}

// isAnswer reports whether an error of a check is a finding about what the API has answered.
func isAnswer(err error) bool {
	_, is := errors.AsType[*gate.Finding](err)
	return is
}

// run explains with the API's help. An API that does not answer is the cause itself, unless it has answered
// the gate: under load, it answers checks, which repeat, before a diagnosis, which has little time.
func run(ctx context.Context, target gate.Target, address, look string, last error,
	explain func(context.Context, *diagnosis)) gate.Diagnosis {
	a, err := client.Open(target.Kubeconfig, address)
	if err != nil {
		return gate.Diagnosis{Cause: err.Error()}
	}
	ctx, stop := context.WithTimeout(ctx, totalTime)
	defer stop()
	d := &diagnosis{api: a, target: target, evidence: newEvidence(a), look: look}
	if err := d.evidence.readSecrets(ctx, firstAnswer); err != nil {
		if isAnswer(last) && errors.Is(err, context.DeadlineExceeded) {
			d.advise(last)
			return gate.Diagnosis{Kind: d.kind, Cause: d.cause, About: d.about, Look: d.look}
		}
		return gate.Diagnosis{Cause: a.Unreachable(err), About: "kubernetes API", Look: lookAtAPI}
	}
	d.evidence.nodes(ctx)
	explain(ctx, d)
	files, redact := d.evidence.finish()
	return gate.Diagnosis{Files: files, Kind: d.kind, Cause: redact(d.cause), About: d.about, Look: d.look,
		Release: d.release}
}

// because names a cause, unless a better one is known. look, if given, shows more than the gate's command.
func (d *diagnosis) because(cause string, look ...string) {
	if d.cause != "" || cause == "" {
		return
	}
	d.cause = cause
	d.look = cmp.Or(append(look, d.look)...)
}

// becauseAbsent is because for something that does not exist.
func (d *diagnosis) becauseAbsent(cause string, look ...string) {
	if d.cause == "" && cause != "" {
		d.kind = gate.NotFound
	}
	d.because(cause, look...)
}

// becauseOf names a node that is not ready as the cause.
func (d *diagnosis) becauseOf(n corev1.Node) {
	if cause, look := nodeCause(n); cause != "" && d.cause == "" {
		d.about = "node " + n.Name
		d.because(cause, look)
	}
}

// conclude names the cause of a check's finding, if its kind has one.
func (d *diagnosis) conclude(ctx context.Context, found error) {
	if absent, ok := errors.AsType[client.Missing](found); ok {
		d.absent(ctx, client.Reference(absent))
	} else if unserved, ok := errors.AsType[client.NotServed](found); ok {
		d.unserved(ctx, unserved)
	} else {
		d.advise(found)
	}
}

// get reads an object and keeps it; nil if it does not exist, which is a cause, or could not be read.
func (d *diagnosis) get(ctx context.Context, s client.Selection, kind string) *client.Object {
	object, err := d.api.Get(ctx, s, kind)
	switch {
	case err == nil:
		d.evidence.object(object)
	case gate.KindOf(err) == gate.NotFound:
		d.conclude(ctx, err)
	default:
		d.evidence.miss(client.Titled(kind, s.Namespace, s.Name), err)
	}
	return object
}

// advise names the cause of a finding's kind.
func (d *diagnosis) advise(found error, look ...string) {
	cause := findings[gate.KindOf(found)]
	if cause == "" || d.cause != "" {
		return
	}
	if f, is := errors.AsType[*gate.Finding](found); is {
		d.about = cmp.Or(d.about, f.Object)
	}
	cause = found.Error() + "; " + cause
	if gate.KindOf(found) == gate.NoObjects {
		d.becauseAbsent(cause, look...)
		return
	}
	d.because(cause, look...)
}

// absent explains an object that does not exist although something waits for it.
func (d *diagnosis) absent(ctx context.Context, m client.Reference) {
	if d.cause != "" {
		return
	}
	kind, look := strings.ToLower(m.Kind), "kubectl get "+strings.ToLower(m.Kind)
	if m.Namespace != "" {
		_, err := d.api.Get(ctx, client.Selection{Resource: client.Core("namespaces"), Name: m.Namespace},
			"Namespace")
		if gate.KindOf(err) == gate.NotFound {
			d.becauseAbsent(fmt.Sprintf("namespace %s does not exist, so that nothing is in it", m.Namespace))
			return
		}
		d.evidence.eventsIn(ctx, m.Namespace)
		look = "kubectl -n " + m.Namespace + " get all," + kind
	}
	if r, found := d.evidence.releaseOf(ctx, m); found {
		d.release = r.namespace + "/" + r.name
		// A rollback to the installed revision recreates the missing objects and keeps all others.
		d.because(fmt.Sprintf("%s is part of the Helm release %s, which is installed: it was deleted since, "+
			"and Helm and Terraform do not notice that", m, d.release),
			fmt.Sprintf("helm -n %s rollback %s %s", r.namespace, r.name, r.revision))
		return
	}
	why := cmp.Or(missing[m.Kind], "it was never created, or it was deleted")
	d.becauseAbsent(fmt.Sprintf("%s does not exist: %s", m, why), look)
}

// unserved explains a kind that the API does not serve.
func (d *diagnosis) unserved(ctx context.Context, absent client.NotServed) {
	group, version, _ := strings.Cut(absent.Where, "/")
	all := client.Selection{Resource: client.Definitions}
	for _, definition := range d.evidence.list(ctx, all, "CustomResourceDefinition") {
		if client.Text(&definition, "spec", "names", "kind") == absent.Kind &&
			(group == "" || client.Text(&definition, "spec", "group") == group) {
			d.evidence.object(&definition)
			if found := gates.CheckDefinition(&definition, version); found != nil {
				d.advise(found, "kubectl describe crd "+definition.GetName())
			}
			return
		}
	}
	d.becauseAbsent(fmt.Sprintf("there is no CustomResourceDefinition for %s: %s", absent.Kind,
		missing["CustomResourceDefinition"]), "kubectl get crds")
}

// describe is the command that shows an object with its events.
func describe(kind, namespace, name string) string {
	command := "kubectl "
	if namespace != "" {
		command += "-n " + namespace + " "
	}
	return command + "describe " + strings.ToLower(kind) + " " + name
}
