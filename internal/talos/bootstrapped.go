package talos

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/zclconf/go-cty/cty"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// ExistsTypes lists what an adoption may ask Talos.
//
// A cluster that is bootstrapped refuses to be so again, and the provider asks
// it for ten minutes; and its import succeeds whatever the machines say. Worse
// is a control plane beside a living etcd: bootstrapped, it would found a second
// one. So every control plane that is there is asked first.
func ExistsTypes() []gate.ExistsType {
	text := cty.String
	return []gate.ExistsType{{
		Name:    "talos_bootstrapped",
		Summary: "etcd has data on one of the control planes",
		Attributes: map[string]gate.Attribute{
			"endpoints": {Type: cty.Map(text), Required: true, Help: "The control planes' own addresses, by the key of the machine's resource instance."},
			"resource": {
				Type: text,
				Help: "The resource whose instances are the machines, if the stage makes them: those that the state lacks are not there yet, and not asked. All are, if not given.",
			},
			"client_configuration": clientConfigurationAttribute(),
		},
		New: func(name string, _ gate.Target, values gate.Values) (gate.Exists, error) {
			q, err := newBootstrapped(values)
			if err != nil {
				return gate.Exists{}, fmt.Errorf("exists %s: %w", name, err)
			}
			return gate.Exists{Name: name, Lookup: q.ask}, nil
		},
	}}
}

type bootstrapped struct {
	config    *clientconfig.Config
	endpoints map[string]string
	resource  string
}

func newBootstrapped(values gate.Values) (*bootstrapped, error) {
	q := &bootstrapped{resource: values.String("resource")}
	if err := values.Decode("endpoints", &q.endpoints); err != nil {
		return nil, fmt.Errorf("endpoints: %w", err)
	}
	var err error
	if q.config, err = clientConfiguration(values); err != nil {
		return nil, err
	}
	return q, nil
}

// verdict is what one machine says.
type verdict struct {
	data    bool     // etcd has data there
	foreign bool     // it belongs to a cluster with other secrets
	problem *problem // why it cannot be said
}

// ErrOtherSecrets says that machines belong to another cluster than the one that
// is asked for, or that this cluster's secrets were lost and made anew.
var ErrOtherSecrets = errors.New("runs with other Talos secrets than the secrets layer has, and nobody gets in without its own")

// ask is true as soon as one machine has data, whatever the others say. It is
// false only if every machine that is there says no.
func (q *bootstrapped) ask(ctx context.Context, known []gate.Known) (bool, error) {
	m := &machines{config: q.config, timeout: attempt, endpoints: q.standing(known)}
	verdicts, err := askAll(ctx, m, m.askData)
	if err != nil {
		return false, err
	}
	var problems []*problem
	var others []string
	for i, v := range verdicts {
		switch {
		case v.data:
			return true, nil
		case v.foreign:
			others = append(others, m.endpoints[i])
		case v.problem != nil:
			problems = append(problems, v.problem)
		}
	}
	switch {
	case len(others) > 0:
		return false, gate.Permanent(fmt.Errorf("%s: %w", strings.Join(others, ", "), ErrOtherSecrets))
	case len(problems) == 0:
		return false, nil
	}
	return false, closed("nobody can tell whether the cluster is bootstrapped", unanswered(problems), problems)
}

// standing are the addresses of the machines that are there: all, or those that the
// state knows, without those that are off: they do not answer before Terraform has
// started them.
func (q *bootstrapped) standing(known []gate.Known) []string {
	var all []string
	for _, key := range slices.Sorted(maps.Keys(q.endpoints)) {
		if q.resource == "" {
			all = append(all, q.endpoints[key])
			continue
		}
		for _, k := range known {
			if k.Address != fmt.Sprintf("%s[%q]", q.resource, key) && k.Address != q.resource {
				continue
			}
			if started, said := k.Attributes["started"].(bool); !said || started {
				all = append(all, q.endpoints[key])
			}
		}
	}
	return all
}

// askData puts the question to one machine.
func (m *machines) askData(ctx context.Context, endpoint string) verdict {
	data, err := m.etcdData(ctx, endpoint)
	if err == nil {
		return verdict{data: data}
	}
	if isForeign(err) {
		// A machine without a configuration shows a certificate that nobody knows.
		virgin, e := m.maintained(ctx, endpoint)
		if e == nil && virgin {
			return verdict{}
		}
		if data, err = m.etcdData(ctx, endpoint); err == nil { // it has just got its configuration
			return verdict{data: data}
		}
		if e == nil && isForeign(err) {
			return verdict{foreign: true}
		}
	}
	if early := (errWaiting("")); errors.As(err, &early) {
		return verdict{problem: &problem{endpoint: endpoint, what: string(early)}}
	}
	p := m.explain(endpoint, err, "about etcd's data")
	if strings.Contains(status.Convert(err).Message(), "remote error: tls: ") {
		p.permanent = true // the machine is this cluster's and knows no such administrator
	}
	return verdict{problem: p}
}

// errWaiting is a machine that is this cluster's and has not come far enough.
type errWaiting string

func (e errWaiting) Error() string { return string(e) }

func isForeign(err error) bool {
	return strings.Contains(status.Convert(err).Message(), "certificate signed by unknown authority")
}

// etcdData is what Talos itself looks at when it is told to bootstrap: whether
// etcd's folder is empty.
func (m *machines) etcdData(ctx context.Context, endpoint string) (bool, error) {
	c, problem := m.connect(ctx, endpoint)
	if problem != nil {
		return false, errors.New(problem.what)
	}
	defer func() { _ = c.Close() }() //nolint:errcheck // nothing was written
	services, err := c.ServiceInfo(ctx, "etcd")
	if err != nil {
		return false, err
	}
	if len(services) == 0 {
		return false, errWaiting("is starting: it has no etcd yet")
	}
	switch s := services[0].Service; s.GetState() {
	case "Initialized", "Waiting", "Starting": // its disk may not be there yet
		return false, errWaiting(fmt.Sprintf("is starting: etcd is %s: %s", s.GetState(), lastEvent(s)))
	}
	files, err := c.LS(ctx, &machineapi.ListRequest{Root: "/var/lib/etcd"})
	if err != nil {
		return false, err
	}
	for {
		file, err := files.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return false, nil
		case err != nil && strings.Contains(err.Error(), "no such file"):
			return false, nil
		case err != nil:
			return false, err
		case file.GetError() == "" && file.GetRelativeName() != "." && file.GetRelativeName() != "":
			return true, nil
		}
	}
}

// maintained says whether a machine lets anybody in: it waits for its configuration.
// One that has a configuration asks for the caller's certificate while they shake
// hands. What it says afterwards to one who has none may never arrive: it closes the
// connection while the caller still writes.
func (m *machines) maintained(ctx context.Context, endpoint string) (bool, error) {
	var asked atomic.Bool
	config := &tls.Config{
		InsecureSkipVerify: true, //nolint:gosec // nobody knows that certificate, and nothing is told
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			asked.Store(true)
			return &tls.Certificate{}, nil
		},
	}
	c, err := client.New(ctx, client.WithTLSConfig(config), client.WithEndpoints(endpoint), client.WithDefaultGRPCDialOptions())
	if err != nil {
		return false, err
	}
	defer func() { _ = c.Close() }() //nolint:errcheck // nothing was written
	_, err = c.Version(ctx)
	switch {
	case asked.Load():
		return false, nil
	case err == nil, status.Code(err) == codes.Unimplemented, status.Code(err) == codes.PermissionDenied:
		return true, nil
	}
	return false, err
}
