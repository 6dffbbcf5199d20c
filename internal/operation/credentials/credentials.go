// Package credentials renews the client certificates of the kubeconfig and the talosconfig. Terraform's
// states hold them, so Terraform renews them: it replaces the resources that issue them, each in its stage.
// Every stage that has one of them as an input is applied after that, and passes it on. A plan that does more
// is refused, as is a stage that has other changes. At the end each credential is used once.
package credentials

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/constants"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/graph"
	"github.com/ephemeral-castle/castle/internal/kube"
	"github.com/ephemeral-castle/castle/internal/kube/drain"
	"github.com/ephemeral-castle/castle/internal/operation/create"
	"github.com/ephemeral-castle/castle/internal/ownfile"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/run/applied"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/talos"
	"github.com/ephemeral-castle/castle/internal/tfeval"
)

// Run renews the kubeconfig and the talosconfig of a cluster, and proves both.
func Run(ctx context.Context, c *cluster.Cluster) error {
	ctx, r, err := run.BeginChecked(ctx, c, "renew", applied.CleanUp)
	if err != nil {
		return err
	}
	x := &renewal{run: r, issuers: map[string][]string{}}
	stages, err := x.stages()
	// One after the other: the preflights of a stage use what an earlier one has renewed.
	for _, s := range stages {
		if err == nil {
			err = create.Stages(ctx, r, []*config.Stage{s}, create.Options{Issuers: x.issuers})
		}
	}
	if err == nil {
		err = x.prove(ctx)
	}
	return r.End(err)
}

// file is a kubeconfig or a talosconfig.
type file struct {
	name         string
	of           func(gate.Target) []byte
	certificates func([]byte) [][]byte
	use          func(context.Context, gate.Target) error
	was          *x509.Certificate
}

type renewal struct {
	run     *run.Run
	files   []*file
	issuers map[string][]string // the resources that issue the certificates, by stage
	passed  []string            // the certificates that stages pass on, as their inputs have them
}

// stages finds the resources that issue the certificates, and returns their stages and those that have a
// certificate as an input. It refuses those that have something else to apply.
func (x *renewal) stages() (all []*config.Stage, err error) {
	states, err := x.run.LastKnownStates()
	if err != nil {
		return nil, err
	}
	x.files = []*file{
		{"kubeconfig", func(t gate.Target) []byte { return t.Kubeconfig }, kube.ClientCertificates,
			func(ctx context.Context, t gate.Target) error {
				_, err := drain.Nodes(ctx, t)
				return err
			}, nil},
		{"talosconfig", func(t gate.Target) []byte { return t.Talosconfig }, talos.ClientCertificates,
			func(ctx context.Context, t gate.Target) error { // only an administrator may read that
				_, err := talos.ActiveConfig(ctx, t.Talosconfig, x.run.Outputs.Machines()[0].Address)
				return err
			}, nil},
	}
	for _, f := range x.files {
		if f.was = x.pass(f.certificates(f.of(x.run.Outputs.Target()))); f.was == nil {
			return nil, cluster.Usagef("%s has no %s with a client certificate; create the cluster first: %s",
				x.run.Cluster.Name(), f.name, x.run.Cluster.Command("create"))
		}
		if !x.findIssuer(f, states) {
			return nil, x.refuse("no resource in the states issues the certificate of the " + f.name)
		}
	}
	var pending []string
	for _, s := range x.run.Cluster.Config.Stages {
		if !states[s].Exists {
			continue
		}
		others, involved, err := x.changes(s)
		if err != nil {
			return nil, err
		}
		if involved {
			all = append(all, s)
		}
		if involved && len(others) > 0 {
			pending = append(pending, s.Name+" has other changes: "+strings.Join(others, ", "))
		}
	}
	// Each gets its configuration with the new certificate, and Terraform would try for ten minutes.
	for _, err := range run.Each(x.run.Outputs.Machines(), answers) {
		if err != nil {
			pending = append(pending, err.Error())
		}
	}
	if len(pending) > 0 {
		return nil, x.refuse(pending...)
	}
	return graph.Sort(all, run.StageNeeds)
}

// answers returns an error unless Talos' API listens on a machine: whom it knows does not matter.
func answers(m run.Machine) error {
	address := net.JoinHostPort(m.Address, strconv.Itoa(constants.ApidPort))
	c, err := net.DialTimeout("tcp", address, answerTime)
	if err != nil {
		return fmt.Errorf("machine %s does not answer: %w", m.Name, err)
	}
	return c.Close()
}

// findIssuer notes the resources that have issued a file's certificate: those with one of the same subject.
func (x *renewal) findIssuer(f *file, states map[*config.Stage]*state.State) (found bool) {
	for _, s := range x.run.Cluster.Config.Stages {
		for _, res := range states[s].Managed() {
			var issued [][]byte
			switch res.Type {
			case "talos_cluster_kubeconfig":
				text, _ := res.Attributes["kubeconfig_raw"].(string)
				issued = kube.ClientCertificates([]byte(text))
			case "tls_locally_signed_cert":
				text, _ := res.Attributes["cert_pem"].(string)
				issued = [][]byte{[]byte(text)}
			}
			if c := parse(issued); c != nil && c.Subject.String() == f.was.Subject.String() {
				x.pass(issued)
				x.issuers[s.Name], found = append(x.issuers[s.Name], res.Address), true
			}
		}
	}
	return found
}

// pass notes that stages may have these certificates as inputs, and returns the first one.
func (x *renewal) pass(certificates [][]byte) *x509.Certificate {
	for _, text := range certificates {
		if len(text) > 0 {
			x.passed = append(x.passed, base64.StdEncoding.EncodeToString(text))
		}
	}
	return parse(certificates)
}

func parse(certificates [][]byte) (c *x509.Certificate) {
	for _, text := range certificates[:min(1, len(certificates))] {
		if block, _ := pem.Decode(text); block != nil {
			c, _ = x509.ParseCertificate(block.Bytes) //nolint:errcheck // then it is nil
		}
	}
	return c
}

// changes reports whether a stage issues a certificate or has one as an input, and what else it has to apply.
func (x *renewal) changes(s *config.Stage) (others []string, involved bool, err error) {
	inputs, unknown := x.run.Inputs(s)
	passes := func(part string) bool {
		return slices.ContainsFunc(tfeval.Strings(inputs[strings.TrimPrefix(part, "variable ")]),
			func(text string) bool {
				return slices.ContainsFunc(x.passed, func(c string) bool { return strings.Contains(text, c) })
			})
	}
	involved = x.issuers[s.Name] != nil
	for name := range inputs {
		involved = involved || passes(name)
	}
	if !involved {
		return nil, false, nil
	}
	last, err := x.run.Cluster.Dir.Stage(s.Name).Fingerprint().Read()
	if err = cmp.Or(unknown, err); err != nil {
		return nil, true, err
	}
	if last == nil {
		return []string{"it is unfinished"}, true, nil
	}
	others, err = applied.Changed(x.run, s, last)
	return slices.DeleteFunc(others, passes), true, err
}

func (x *renewal) refuse(reasons ...string) error {
	return &run.RefusedError{Refused: "the renewal was not begun; nothing was changed", Reasons: reasons,
		Fix: "apply other changes first: " + x.run.Cluster.Command("create")}
}

// answerTime bounds the proofs.
const answerTime = 30 * time.Second

// prove uses each new credential once, and checks that it is valid for longer than the one before, and that
// the exported files hold it.
func (x *renewal) prove(ctx context.Context) error {
	ctx, stop := context.WithTimeoutCause(ctx, answerTime, fmt.Errorf("no answer within %s", answerTime))
	defer stop()
	target := x.run.Outputs.Target()
	kubeconfigs, talosconfigs := x.run.Cluster.Exports()
	for i, exports := range [][]string{kubeconfigs, talosconfigs} {
		f := x.files[i]
		now := parse(f.certificates(f.of(target)))
		if now == nil || !now.NotAfter.After(f.was.NotAfter) {
			return fmt.Errorf("the %s is the one before: its certificate was not renewed", f.name)
		}
		if err := f.use(ctx, target); err != nil {
			return fmt.Errorf("the new %s: %w", f.name, err)
		}
		for _, path := range exports {
			if data, err := ownfile.ReadFile(path); err != nil || string(data) != string(f.of(target)) {
				return errors.Join(fmt.Errorf("%s does not hold the new %s", path, f.name), err)
			}
		}
		x.run.Notice(fmt.Sprintf("the new %s works, and is valid until %s", f.name,
			now.NotAfter.UTC().Format(time.DateOnly)))
	}
	return nil
}
