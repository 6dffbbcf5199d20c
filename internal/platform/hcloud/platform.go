// Package hcloud is the platform Hetzner Cloud: servers, networks, load balancers and firewalls of a project.
// A resource has an id that the API never uses again, and a name that is unique among those of its kind. So
// an id in a state proves a resource, and a creation cannot take somebody else's for its own: the API refuses
// the name. What a killed run has made is found by its name, and proved by the label with its uuid, which the
// stages derive from the cluster's key.
package hcloud

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/platform"
	"github.com/ephemeral-castle/castle/internal/process"
	"github.com/ephemeral-castle/castle/internal/revision"
)

// Platform is Hetzner Cloud.
type Platform struct{}

var _ platform.Platform = Platform{}

// The methods of Platform answer as the interfaces of package platform say.

func (Platform) Name() string                      { return "Hetzner Cloud" }
func (Platform) Preflights() []gate.PreflightType  { return []gate.PreflightType{resources()} }
func (Platform) MachinePreflight() string          { return Preflight }
func (Platform) IsMachine(typ string) bool         { return typ == typeServer }
func (p Platform) FoundByPreflights(t string) bool { return p.Owns(t) }
func (Platform) FileID(gate.Known) string          { return "" }

func (Platform) FileOf(string, string) (platform.Object, bool) { return platform.Object{}, false }

func (Platform) Remedy(o platform.Object) string {
	return resource{kind: append(kindsOf([]platform.Object{o}), kinds[0])[0], id: number(o)}.remedy()
}

func (Platform) Account(v gate.Values) (platform.Account, []int, error) {
	return accountOf(v), nil, nil
}

// The variables of the provider.
const endpointVariable, tokenVariable = "HCLOUD_ENDPOINT", "HCLOUD_TOKEN"

func (Platform) Variables() (endpoint, token string) { return endpointVariable, tokenVariable }

// Environment has the public API where the environment names a token alone.
func (Platform) Environment(environ []string) platform.Account {
	a := platform.Account{Endpoint: process.Getenv(environ, endpointVariable),
		Token: process.Getenv(environ, tokenVariable)}
	if a.Token != "" {
		a.Endpoint = cmp.Or(a.Endpoint, DefaultEndpoint)
	}
	return a
}

func (Platform) SameEndpoint(a, b string) bool {
	plain := func(s string) string { return strings.TrimRight(cmp.Or(s, DefaultEndpoint), "/") }
	return strings.EqualFold(plain(a), plain(b))
}

func (Platform) Open(a platform.Account) (platform.Datacenter, error) { return open(a) }

func (Platform) Nuke(a platform.Account, m platform.Signs, note func(line any, text string) error) (
	platform.Nuke, error) {
	p, err := open(a)
	return &nuke{project: p, signs: m, note: note}, err
}

// Revisions reads the revisions of a stage's resources: a digest of their names, labels and protection, of a
// server also its type and whether it runs.
func (Platform) Revisions() revision.System {
	const name = "hcloud"
	read := func(ctx context.Context, s revision.Stage, known []revision.Object) ([]revision.Object, error) {
		all := slices.Clone(known)
		if known == nil {
			all = revisable(s)
		}
		values := s.Preflights[Preflight]
		if len(all) == 0 || values == nil {
			return nil, nil
		}
		p, err := open(accountOf(values))
		if err != nil {
			return nil, err
		}
		ctx, stop := context.WithTimeout(ctx, 10*time.Second)
		defer stop()
		found, err := p.list(ctx, kinds)
		if err != nil {
			return nil, err
		}
		for i := range all {
			all[i].System, all[i].Revision = name, ""
			if r, exists := find(found, platform.Object{Kind: all[i].Kind, Volume: all[i].Ref}); exists {
				all[i].Revision = r.revision()
			}
		}
		return all, nil
	}
	return revision.System{Name: name, Read: read}
}

func revisable(s revision.Stage) (all []revision.Object) {
	for _, r := range s.State.Managed() {
		known := []gate.Known{{Type: r.Type, Attributes: r.Attributes}}
		for _, o := range (Platform{}).ObjectsOf(known) {
			if !r.Deposed {
				all = append(all, revision.Object{Kind: o.Kind, Name: o.Name, Ref: o.ID(),
					Address: r.Address})
			}
		}
	}
	return all
}

func (r resource) revision() string {
	// fmt prints maps in the order of their keys.
	sum := sha256.Sum256(fmt.Append(nil, r.name, r.labels, r.protected, r.size, r.location))
	if r.status == hcloud.ServerStatusOff {
		return fmt.Sprintf("%x/stopped", sum[:8])
	}
	return fmt.Sprintf("%x", sum[:8])
}
