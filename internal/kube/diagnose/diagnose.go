// Package diagnose explains a closed gate. It starts from the finding of the gate's own check (package
// gates), collects evidence around it (objects, events, Pods, logs), and names the first known cause in the
// order in which a person would look. Known causes stand in one table (causes.go).
//
// A diagnosis reads and changes nothing, has bounds in time and size, and never shows a Secret's data. It
// notes and skips unreadable objects: half of an explanation is better than none.
package diagnose

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube/client"
	"github.com/ephemeral-castle/castle/internal/kube/gates"
)

const (
	totalTime   = 10 * time.Second // for everything around one gate
	firstAnswer = 4 * time.Second  // for the first request: an API that hangs is a finding
)

// diagnosis is the work on one closed gate.
type diagnosis struct {
	api      *client.API
	target   gate.Target // for other addresses of the same cluster
	evidence *evidence

	cause, look, release string // as in gate.Diagnosis
}

// Gate makes the Diagnose of a gate of the type with these arguments.
func Gate(typeName string, target gate.Target, v gate.Values) func(context.Context) gate.Diagnosis {
	e := explanations[typeName]
	look := e.look
	if e.lookAt != nil {
		look = e.lookAt(v)
	}
	return run(client.New(target, v.String("address")), target, look,
		func(ctx context.Context, d *diagnosis) {
			found := d.check(ctx, typeName, v)
			e.collect(ctx, d, v, found)
			d.conclude(ctx, found)
		})
}

// check runs the gate's own check. The dry runs of a webhook's check may hang, so they come later.
func (d *diagnosis) check(ctx context.Context, typeName string, v gate.Values) error {
	checker, err := gates.NewChecker(typeName, v)
	if err != nil || checker == nil || typeName == "webhook" {
		return err
	}
	return checker.Check(ctx, d.api)
}

func run(c *client.Cluster, target gate.Target, look string,
	explain func(context.Context, *diagnosis)) func(context.Context) gate.Diagnosis {
	return func(caller context.Context) gate.Diagnosis {
		a, err := c.API()
		if err != nil {
			return gate.Diagnosis{Cause: err.Error()}
		}
		ctx, stop := context.WithTimeout(caller, totalTime)
		defer stop()
		d := &diagnosis{api: a, target: target, evidence: newEvidence(a), look: look}
		if err := d.evidence.readSecrets(ctx, min(c.Attempt, firstAnswer)); err != nil {
			return gate.Diagnosis{Cause: a.Unreachable(err), Look: lookAtAPI}
		}
		d.evidence.nodes(ctx)
		explain(ctx, d)
		files, redact := d.evidence.finish()
		return gate.Diagnosis{Files: files, Cause: redact(d.cause), Look: d.look, Release: d.release}
	}
}

// because names a cause, unless a better one is known already. look, if given, shows more than the gate's
// own command.
func (d *diagnosis) because(cause string, look ...string) {
	if d.cause != "" || cause == "" {
		return
	}
	d.cause = cause
	d.look = cmp.Or(append(look, d.look)...)
}

// conclude names the cause of a check's finding, if its kind has one.
func (d *diagnosis) conclude(ctx context.Context, found error) {
	var (
		missing   client.Missing
		notServed client.NotServed
	)
	switch {
	case errors.As(found, &missing):
		d.absent(ctx, missing)
	case errors.As(found, &notServed):
		d.unserved(ctx, notServed)
	default:
		d.advise(found)
	}
}

// advise names the cause of a finding's kind.
func (d *diagnosis) advise(found error, look ...string) {
	if c := known(finding, string(gate.KindOf(found))); c.text != "" {
		d.because(found.Error()+"; "+c.text, append(look, c.look)...)
	}
}

// absent explains an object that does not exist although something waits for it.
func (d *diagnosis) absent(ctx context.Context, m client.Missing) {
	if d.cause != "" {
		return
	}
	if m.Namespace != "" {
		_, err := d.api.Get(ctx, client.Selection{Resource: client.Core("namespaces"), Name: m.Namespace},
			"Namespace")
		if gate.KindOf(err) == gate.NotFound {
			d.because(fmt.Sprintf("namespace %s does not exist, so that nothing is in it", m.Namespace))
			return
		}
	}
	what := client.Titled(m.Kind, m.Namespace, m.Name)
	if r, found := d.evidence.releaseOf(ctx, m); found {
		d.release = r.namespace + "/" + r.Name
		// A rollback to the installed revision recreates the missing objects and keeps all others.
		d.because(fmt.Sprintf("%s is part of the Helm release %s, which is installed: it was deleted since, "+
			"and Helm and Terraform do not notice that", what, d.release),
			fmt.Sprintf("helm -n %s rollback %s %s", r.namespace, r.Name, r.revision))
		return
	}
	look := "kubectl get " + strings.ToLower(m.Kind)
	if m.Namespace != "" {
		d.evidence.eventsIn(ctx, m.Namespace)
		look = "kubectl -n " + m.Namespace + " get all," + strings.ToLower(m.Kind)
	}
	why := cmp.Or(known(missing, m.Kind).text, "it was never created, or it was deleted")
	d.because(what+" does not exist: "+why, look)
}

// unserved explains a kind that the API does not serve.
func (d *diagnosis) unserved(ctx context.Context, absent client.NotServed) {
	group, version, grouped := strings.Cut(absent.Where, "/")
	if !grouped {
		version = ""
	}
	all, err := d.api.List(ctx, client.Selection{Resource: client.Definitions}, "CustomResourceDefinition")
	if err != nil {
		d.evidence.miss("CustomResourceDefinitions", err)
	}
	for i := range all {
		definition := &all[i]
		if client.Text(definition, "spec", "names", "kind") != absent.Kind ||
			group != "" && client.Text(definition, "spec", "group") != group {
			continue
		}
		d.evidence.object(definition)
		d.advise(gates.CheckDefinition(definition, version), describe("crd", "", definition.GetName()))
		return
	}
	d.because(fmt.Sprintf("there is no CustomResourceDefinition for %s: %s",
		absent.Kind, known(missing, "CustomResourceDefinition").text), "kubectl get crds")
}

// describe is the command that shows an object with its events.
func describe(kind, namespace, name string) string {
	command := "kubectl "
	if namespace != "" {
		command += "-n " + namespace + " "
	}
	return command + "describe " + strings.ToLower(kind) + " " + name
}
