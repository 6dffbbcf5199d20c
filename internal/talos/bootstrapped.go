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

// ExistsBootstrapped is the adoption check that tells whether there is an etcd already.
const ExistsBootstrapped = "talos_bootstrapped"

// ExistsTypes lists the adoption checks of Talos. A bootstrapped cluster rejects a second bootstrap, which
// the provider retries for ten minutes. A blank control plane beside a living etcd accepts it and founds a
// second cluster. So the check queries every control plane.
func ExistsTypes() []gate.ExistsType {
	return []gate.ExistsType{{
		Name:    ExistsBootstrapped,
		Summary: "etcd has data on one of the control planes",
		Attributes: map[string]gate.Attribute{
			"endpoints": {Type: cty.Map(cty.String), Required: true,
				Help: "The control planes' own addresses, by name. All are queried."},
			"client_configuration": clientConfigurationAttribute(),
		},
		New: func(name string, _ gate.Target, values gate.Values) (gate.Exists, error) {
			var endpoints map[string]string
			err := values.Decode("endpoints", &endpoints)
			b := &bootstrapped{endpoints: slices.Sorted(maps.Values(endpoints))}
			if err == nil {
				b.config, err = clientConfiguration(values)
			}
			if err != nil {
				return gate.Exists{}, fmt.Errorf("exists %s: %w", name, err)
			}
			return gate.Exists{Name: name, Lookup: b.check}, nil
		},
	}}
}

type bootstrapped struct {
	config    *clientconfig.Config
	endpoints []string
}

// ErrOtherSecrets means machines of another cluster, or secrets that were lost and generated again.
var ErrOtherSecrets = errors.New(
	"runs with other Talos secrets than the secrets layer has; only its own secrets give access")

// check is true once one machine has data, and false only if every one answers that it has none.
func (b *bootstrapped) check(ctx context.Context) (bool, error) {
	m := &machines{config: b.config, timeout: attempt, endpoints: b.endpoints}
	nodes, err := queryAll(ctx, m, m.queryEtcdData)
	if err != nil {
		return false, err
	}
	var foreign []string
	for _, n := range nodes {
		switch {
		case n.hasEtcdData:
			return true, nil
		case n.problem != nil && n.problem.kind == otherSecrets:
			foreign = append(foreign, n.endpoint)
		}
	}
	problems := problemsOf(nodes)
	switch {
	case len(foreign) > 0:
		return false, gate.Permanent(fmt.Errorf("%s: %w", strings.Join(foreign, ", "), ErrOtherSecrets))
	case len(problems) == 0:
		return false, nil
	}
	return false, notReady("cannot determine whether the cluster is bootstrapped", problems)
}

// queryEtcdData reads a machine's answer. In maintenance mode, its certificate is unknown and it has no data.
func (m *machines) queryEtcdData(ctx context.Context, endpoint string) nodeView {
	n := nodeView{endpoint: endpoint}
	m.readEtcdData(ctx, &n)
	if n.problem != nil && n.problem.kind == unknownCA {
		maintenance, err := m.inMaintenance(ctx, endpoint)
		if err == nil && maintenance {
			return nodeView{endpoint: endpoint}
		}
		m.readEtcdData(ctx, &n) // it may have got its configuration just now
		if err == nil && n.problem != nil && n.problem.kind == unknownCA {
			n.problem.kind = otherSecrets
		}
	}
	if n.problem != nil && n.problem.kind == rejectsCaller {
		n.problem.permanent = true // a machine of this cluster does not know this administrator
	}
	return n
}

// readEtcdData makes the check of Talos before a bootstrap: whether etcd's data directory is empty.
func (m *machines) readEtcdData(ctx context.Context, n *nodeView) {
	n.problem = m.call(ctx, n.endpoint, "etcd's data directory", func(c *client.Client) error {
		services, err := c.ServiceInfo(ctx, "etcd")
		if err != nil {
			return err
		}
		if len(services) == 0 {
			return errors.New("is starting: it has no etcd yet")
		}
		switch s := services[0].Service; s.GetState() {
		case "Initialized", "Waiting", "Starting": // its disk may not be mounted yet
			return fmt.Errorf("is starting: etcd is %s: %s", s.GetState(), lastEvent(s))
		}
		n.hasEtcdData, err = hasEtcdData(ctx, c)
		return err
	})
}

// hasEtcdData lists the directory, which is the first entry of its own list.
func hasEtcdData(ctx context.Context, c *client.Client) (has bool, err error) {
	files, err := c.LS(ctx, &machineapi.ListRequest{Root: "/var/lib/etcd"})
	entries := 0
	for err == nil && !has {
		var file *machineapi.FileInfo
		if file, err = files.Recv(); err == nil {
			entries++
			has = file.GetError() == "" && strings.Trim(file.GetRelativeName(), ".") != ""
		}
	}
	switch {
	case errors.Is(err, io.EOF) && entries == 0:
		return false, errors.New("lists nothing, not even etcd's data directory itself")
	case errors.Is(err, io.EOF), err != nil && strings.Contains(err.Error(), "no such file"):
		return has, nil
	}
	return has, err
}

// inMaintenance reports whether a machine admits anybody because it waits for its configuration. A configured
// machine requests a client certificate in the handshake. Its answer after that may never arrive: it closes
// the connection while the client still writes.
func (m *machines) inMaintenance(ctx context.Context, endpoint string) (bool, error) {
	var requested atomic.Bool
	config := &tls.Config{
		InsecureSkipVerify: true, //nolint:gosec // the certificate is unknown, and no secret is sent
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			requested.Store(true)
			return &tls.Certificate{}, nil
		},
	}
	c, err := client.New(ctx, client.WithTLSConfig(config), client.WithEndpoints(endpoint),
		client.WithDefaultGRPCDialOptions())
	if err != nil {
		return false, err
	}
	defer func() { _ = c.Close() }() //nolint:errcheck // nothing was written
	_, err = c.Version(ctx)
	switch {
	case isOtherAPI(err):
		return false, err
	case requested.Load():
		return false, nil
	case err == nil, status.Code(err) == codes.Unimplemented, status.Code(err) == codes.PermissionDenied:
		return true, nil
	}
	return false, err
}
