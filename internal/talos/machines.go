// Package talos checks and changes Talos machines through their own API, each directly with the cluster's
// talosconfig, never by the virtual address, which moves, or another machine. A Node is one machine that
// castle upgrades and restarts. A machine that boots, installs itself or waits for its configuration is not
// ready. An error is permanent only if waiting cannot help: a worker among the control planes, or a
// talosconfig without the role for a gate's reads.
package talos

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/siderolabs/crypto/x509"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	"github.com/zclconf/go-cty/cty"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// GateTypes returns the gates that read the state of Talos machines.
func GateTypes() []gate.Type { return []gate.Type{etcdType(), virtualIPType(), versionType()} }

// attempt bounds one check of all machines: some calls hang on a machine whose etcd does not run.
const attempt = 5 * time.Second

// machines are the machines that a check queries, each one directly.
type machines struct {
	config    *clientconfig.Config
	endpoints []string // sorted and unique
	timeout   time.Duration
}

func endpointsAttribute() gate.Attribute {
	return gate.Attribute{Type: cty.List(cty.String),
		Help: "The control planes' own addresses; the talosconfig's endpoints unless given."}
}

func newMachines(talosconfig []byte, values gate.Values) (*machines, error) {
	if len(talosconfig) == 0 {
		return nil, errors.New("there is no talosconfig")
	}
	config := readConfig(talosconfig)
	if config == nil {
		// The file holds a key, and a decoder's error may quote the file.
		return nil, errors.New("the talosconfig is no valid YAML")
	}
	if err := Inline(talosconfig); err != nil {
		return nil, err
	}
	selected := config.Contexts[config.Context]
	if selected == nil {
		return nil, fmt.Errorf("the talosconfig has no context %q", config.Context)
	}
	m := &machines{config: config, timeout: attempt}
	if err := values.Decode("endpoints", &m.endpoints); err != nil {
		return nil, fmt.Errorf("endpoints: %w", err)
	}
	for _, fallback := range [][]string{selected.Endpoints, selected.Nodes} {
		if len(m.endpoints) == 0 {
			m.endpoints = fallback
		}
	}
	m.endpoints = slices.Compact(slices.Sorted(slices.Values(m.endpoints)))
	return m, nil
}

// Inline refuses a talosconfig that signs in to Omni: the client opens a browser at the server that the file
// names, and writes keys to the home directory. Such a file may come from a state that somebody else has
// written. Nothing else in a talosconfig names files or programs. A text that is no talosconfig passes.
func Inline(talosconfig []byte) error {
	config := readConfig(talosconfig)
	if config == nil {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(config.Contexts)) {
		if config.Contexts[name].Auth.SideroV1 != nil {
			return fmt.Errorf("talosconfig: the context %q signs in with a browser (auth.siderov1), which "+
				"castle refuses: whoever can write the state would choose where\n  output a talosconfig "+
				"that has its certificates and key in itself (ca, crt, key)", name)
		}
	}
	return nil
}

// ClientCertificates returns the certificates, in PEM, of a talosconfig's contexts.
func ClientCertificates(talosconfig []byte) [][]byte {
	return eachContext(talosconfig, func(c *clientconfig.Context) string { return c.Crt })
}

// Authorities returns the certificates, in PEM, by which a talosconfig trusts its machines.
func Authorities(talosconfig []byte) [][]byte {
	return eachContext(talosconfig, func(c *clientconfig.Context) string { return c.CA })
}

func eachContext(talosconfig []byte, encoded func(*clientconfig.Context) string) (all [][]byte) {
	config := readConfig(talosconfig)
	if config == nil {
		return nil
	}
	for _, context := range config.Contexts {
		text, _ := base64.StdEncoding.DecodeString(encoded(context)) //nolint:errcheck // then it is none
		all = append(all, text)
	}
	return all
}

// readConfig returns nil for a text that is no talosconfig: on a context that is null, machinery panics.
func readConfig(talosconfig []byte) (config *clientconfig.Config) {
	defer func() {
		if recover() != nil {
			config = nil
		}
	}()
	config, err := clientconfig.FromBytes(talosconfig)
	if err != nil {
		return nil
	}
	return config
}

func clientConfigurationAttribute() gate.Attribute {
	return gate.Attribute{
		Type: cty.Object(map[string]cty.Type{
			"ca_certificate": cty.String, "client_certificate": cty.String, "client_key": cty.String,
		}),
		Required: true,
		Help:     "Certificate and key of Talos' administrator, as talos_machine_secrets has them.",
	}
}

// clientConfiguration reads the argument of that name.
func clientConfiguration(values gate.Values) (*clientconfig.Config, error) {
	var decoded [3][]byte
	for i, part := range []string{"ca_certificate", "client_certificate", "client_key"} {
		var err error
		text := values["client_configuration"].GetAttr(part).AsString()
		if decoded[i], err = base64.StdEncoding.DecodeString(text); err != nil {
			return nil, fmt.Errorf("client_configuration: %s is not valid base64", part)
		}
	}
	pair := &x509.PEMEncodedCertificateAndKey{Crt: decoded[1], Key: decoded[2]}
	return clientconfig.NewConfig("castle", nil, decoded[0], pair), nil
}

// queryAll calls query for all machines in parallel, bounded by the timeout, and
// returns the answers in the order of the endpoints. It fails only if ctx ends.
func queryAll[A any](ctx context.Context, m *machines, query func(context.Context, string) A) ([]A, error) {
	bounded, stop := context.WithTimeout(ctx, m.timeout)
	defer stop()
	answers := make([]A, len(m.endpoints))
	var all sync.WaitGroup
	for i, endpoint := range m.endpoints {
		all.Go(func() { answers[i] = query(bounded, endpoint) })
	}
	all.Wait()
	if ctx.Err() != nil {
		return answers, context.Cause(ctx)
	}
	return answers, nil
}

// nodeView is one control plane's report about itself, as far as it was read. It holds only resources that
// a reader may see and no secrets: never machine configurations or operator specs.
type nodeView struct {
	endpoint    string
	problem     *problem // why the report is empty or incomplete
	services    []*machineapi.ServiceInfo
	addresses   []network.AddressStatusSpec
	links       []string
	etcdProblem *problem // why a diagnosis lacks the rest
	status      *machineapi.EtcdMemberStatus
	members     []*machineapi.EtcdMember
	alarms      []*machineapi.EtcdMemberAlarm
	hasEtcdData bool
	release     string // of Talos: v1.13.0
	schematic   string // of its image
	leaving     bool   // the machine is being upgraded or shut down
}

// queryNodes lets read fill the view of each machine. subject names the resource that it reads.
func (m *machines) queryNodes(ctx context.Context, subject string,
	read func(context.Context, *client.Client, *nodeView) error) ([]nodeView, error) {
	return queryAll(ctx, m, func(ctx context.Context, endpoint string) nodeView {
		n := nodeView{endpoint: endpoint}
		n.problem = m.call(ctx, endpoint, subject, func(c *client.Client) error { return read(ctx, c, &n) })
		return n
	})
}

// call connects to one machine for one attempt: a kept connection pauses after each failure before it dials
// again. subject names the resource that do reads.
func (m *machines) call(ctx context.Context, endpoint, subject string,
	do func(*client.Client) error) *problem {
	c, err := client.New(ctx, client.WithConfig(m.config), client.WithEndpoints(endpoint),
		client.WithDefaultGRPCDialOptions())
	if err != nil {
		return &problem{endpoint: endpoint, reason: err.Error(), permanent: true}
	}
	defer func() { _ = c.Close() }() //nolint:errcheck // nothing was written
	if err := do(c); err != nil {
		return m.explain(endpoint, err, subject)
	}
	return nil
}

// first returns the only message of an answer.
func first[M any](answer interface{ GetMessages() []M }, err error) (message M, _ error) {
	switch messages := answer.GetMessages(); {
	case err != nil:
		return message, err
	case len(messages) == 0:
		return message, errors.New("empty answer")
	default:
		return messages[0], nil
	}
}

// problemKind classifies why a machine did not answer.
type problemKind int

const (
	otherProblem  problemKind = iota
	etcdDown                  // the API answers, etcd does not run
	unknownCA                 // an authority signed the machine's certificate that is not the cluster's
	otherSecrets              // the machine was configured with another cluster's secrets
	rejectsCaller             // the machine trusts the cluster's CA and not this client
	forbidden                 // the machine knows the client, whose role is too low
)

// problem is why a machine did not answer; the reason follows its address in a message.
type problem struct {
	endpoint  string
	kind      problemKind
	reason    string
	permanent bool
}

// plainErrors are the informative parts of gRPC's long error texts.
var plainErrors = []string{
	"connection refused", "no route to host", "network is unreachable", "connection reset by peer",
	"i/o timeout", "no such host",
}

// otherAPI are parts of gRPC's texts about a server that is no Talos, such as a web server or a proxy. gRPC
// gives its page a code: 404 becomes Unimplemented, and 403 PermissionDenied, which Talos sends as well.
var otherAPI = []string{
	"unexpected HTTP status code", "unexpected content-type", "malformed header: missing HTTP content-type",
	"looked like an HTTP/1.1 header", "first record does not look like a TLS handshake",
}

// isOtherAPI reports whether something else than Talos has answered.
func isOtherAPI(err error) bool {
	return slices.ContainsFunc(otherAPI, func(part string) bool {
		return strings.Contains(status.Convert(err).Message(), part)
	})
}

// explain turns a failed call into a problem. Only explain recognises the texts of Talos and gRPC.
func (m *machines) explain(endpoint string, err error, subject string) *problem {
	text := status.Convert(err).Message()
	after := func(marker string) string {
		_, detail, _ := strings.Cut(text, marker)
		return strings.TrimRight(detail, `"`)
	}
	p := &problem{endpoint: endpoint, reason: text}
	switch code := status.Code(err); {
	case isOtherAPI(err):
		p.reason = "something answers that is not Talos: " + text
	case code == codes.PermissionDenied:
		// The machine's certificate was the cluster's, so it is not in maintenance mode.
		p.kind, p.permanent = forbidden, true
		p.reason = "the talosconfig's role may not read " + subject + " (os:reader may)"
	case code == codes.Unimplemented && strings.Contains(text, "only available on control plane nodes"):
		p.reason, p.permanent = "is a worker: endpoints must name control planes only", true
	case strings.Contains(text, "certificate signed by unknown authority"):
		p.kind, p.reason = unknownCA, "shows no certificate of this cluster "+
			"(it waits for its configuration, or belongs to another cluster)"
	case strings.Contains(text, "remote error: tls: "):
		p.kind = rejectsCaller
		p.reason = "rejects the talosconfig's certificate (" + after("remote error: tls: ") + ")"
	case code == codes.DeadlineExceeded:
		p.reason = fmt.Sprintf("no answer within %s", m.timeout)
	case strings.Contains(text, ":2379"), strings.Contains(text, "admin.crt: no such file"):
		p.kind, p.reason = etcdDown, "etcd does not run yet"
	case strings.Contains(text, "x509: "):
		p.reason = after("x509: ")
	default:
		for _, plain := range plainErrors {
			if strings.Contains(text, plain) {
				p.reason = plain
			}
		}
	}
	return p
}

// notReady is the error of a closed gate: the progress, the machines that did not answer (those with the same
// reason share a line), then the details. It is permanent if one of the machines' problems is.
func notReady(progress string, problems []*problem, details ...string) error {
	lines := []string{progress}
	endpoints := map[string]string{}
	for _, p := range problems {
		endpoints[p.reason] = strings.TrimPrefix(endpoints[p.reason]+", "+p.endpoint, ", ")
	}
	for _, p := range problems {
		if line := endpoints[p.reason] + ": " + p.reason; !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	err := errors.New(strings.Join(append(lines, details...), "; "))
	if slices.ContainsFunc(problems, func(p *problem) bool { return p.permanent }) {
		return gate.Permanent(err)
	}
	return err
}

func problemsOf(nodes []nodeView) []*problem {
	var all []*problem
	for _, n := range nodes {
		if n.problem != nil {
			all = append(all, n.problem)
		}
	}
	return all
}

// hostOf is an endpoint without its port.
func hostOf(endpoint string) string {
	host, _, _ := net.SplitHostPort(endpoint) //nolint:errcheck // it has no port then
	return cmp.Or(host, endpoint)
}

// Endpoints are the control planes' own addresses in a talosconfig; nil if it is none.
func Endpoints(talosconfig []byte) []string {
	config := readConfig(talosconfig)
	if config == nil || config.Contexts[config.Context] == nil {
		return nil
	}
	return config.Contexts[config.Context].Endpoints
}
