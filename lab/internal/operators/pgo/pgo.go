package operators

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ephemeral-castle/castle/lab/internal/postgres"

	"github.com/ephemeral-castle/castle/lab/internal/operators/cluster"
)

// pgo is Crunchy's operator for PostgreSQL. Its database is real, but runs beside the cluster, at
// the address that the cluster's Service requests from MetalLB. Its version is that of the
// machine's PostgreSQL, not that of the PostgresCluster.
type pgo struct {
	w       *cluster.View
	dir     string
	log     io.Writer
	running map[types.UID]*database
}

// database is a PostgreSQL that runs for a PostgresCluster.
type database struct {
	server   *postgres.Server
	place    netip.AddrPort
	password string // the superuser's
	written  string // what it was told of users and databases
	begun    bool   // the user's own statements were run
}

func newPGO(w *cluster.View, dir string) *pgo {
	return &pgo{w: w, dir: dir, log: os.Stderr, running: map[types.UID]*database{}}
}

func (p *pgo) Close() {
	for _, d := range p.running {
		d.server.Close() //nolint:errcheck // it ends with the process otherwise
	}
}

func postgresClusters() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: pgoGroup, Version: "v1beta1", Resource: "postgresclusters"}
}

const (
	pgoGroup      = "postgres-operator.crunchydata.com"
	superuser     = "postgres"
	listenAddress = "metallb.io/loadBalancerIPs"
)

func (p *pgo) Look(ctx context.Context) error {
	operator, err := p.w.Deployment(ctx, "pgo")
	if err != nil || operator == nil {
		return err
	}
	all, err := p.w.List(ctx, postgresClusters(), "")
	if err != nil {
		return err
	}
	var errs []error
	there := map[types.UID]bool{}
	for _, c := range all {
		there[c.GetUID()] = true
		errs = append(errs, cluster.About(cluster.Titled(&c), p.reconcile(ctx, &c)))
	}
	for uid, d := range p.running {
		if !there[uid] {
			delete(p.running, uid)
			errs = append(errs, d.server.Close())
		}
	}
	return errors.Join(errs...)
}

// reconcile fills the users' Secrets before there is a database, and tells that of
// the users once it runs. The status has seen the cluster even if that fails, which
// is all that Flux's health check wants of it.
func (p *pgo) reconcile(ctx context.Context, c *unstructured.Unstructured) error {
	users, err := p.users(ctx, c)
	due := p.w.Passed("postgres "+string(c.GetUID()), 20*time.Second)
	if err == nil && due && exposed(c) {
		err = p.serve(ctx, c, users)
	}
	return errors.Join(err, p.w.SetStatus(ctx, postgresClusters(), c, func(status map[string]any) {
		d := p.running[c.GetUID()]
		ready := due && (d != nil || !exposed(c))
		if ready {
			for typ, reason := range map[string]string{
				"PGBackRestRepoHostReady": "RepoHostReady", "PGBackRestReplicaRepoReady": "StanzaCreated",
				"PGBackRestReplicaCreate": "RepoBackupComplete",
			} {
				p.w.SetCondition(status, typ, "True", reason, "", c.GetGeneration())
			}
		}
		if d != nil && d.begun {
			status["databaseInitSQL"] = cluster.Text(c.Object, "spec", "databaseInitSQL", "name")
		}
		status["instances"], status["observedGeneration"] = instances(c, ready), c.GetGeneration()
	}))
}

// serve has a database run that knows the users.
func (p *pgo) serve(ctx context.Context, c *unstructured.Unstructured, users []user) error {
	d := p.running[c.GetUID()]
	if d == nil {
		var err error
		if d, err = p.start(ctx, c); err != nil {
			return err
		}
		p.running[c.GetUID()] = d
	}
	return errors.Join(d.write(ctx, users), p.begin(ctx, c, d))
}

// instances returns the status of each set of Pods; a set without a name gets a number.
func instances(c *unstructured.Unstructured, ready bool) []any {
	//nolint:errcheck // the API server has validated it
	sets, _, _ := unstructured.NestedSlice(c.Object, "spec", "instances")
	all := []any{}
	for i, one := range sets {
		set, _ := one.(map[string]any)
		name, replicas := cluster.Text(set, "name"), max(1, cluster.Whole(set, "replicas"))
		if name == "" {
			name = fmt.Sprintf("%02d", i)
		}
		status := map[string]any{"name": name, "replicas": replicas, "updatedReplicas": replicas}
		if ready {
			status["readyReplicas"] = replicas
		}
		all = append(all, status)
	}
	return all
}

// exposed reports whether the database is reachable from outside the cluster. The lab runs no
// database that only Pods can reach, because no client in the lab could connect to it.
func exposed(c *unstructured.Unstructured) bool {
	return cluster.Text(c.Object, "spec", "service", "type") == "LoadBalancer"
}

// start creates a new database: no data survives a restart of the machines.
func (p *pgo) start(ctx context.Context, c *unstructured.Unstructured) (*database, error) {
	at, err := p.address(ctx, c)
	if err != nil {
		return nil, err
	}
	d := &database{place: netip.AddrPortFrom(at, 5432), password: rand.Text()}
	if port := cluster.Whole(c.Object, "spec", "port"); port > 0 {
		d.place = netip.AddrPortFrom(at, uint16(port))
	}
	if has, wanted := int64(postgres.Release()),
		cluster.Whole(c.Object, "spec", "postgresVersion"); has < wanted {
		fmt.Fprintf(p.log, "lab: %s is PostgreSQL %d, and that of the lab is %d: what a later release "+
			"refuses passes here "+
			//nolint:errcheck // a log
			"(from 16, CREATEROLE grants only the roles that it has with ADMIN OPTION)\n", cluster.Titled(c),
			wanted, has)
	}
	id, err := newIdentity(c.GetNamespace(), c.GetName()+"-primary", p.w.Now(), 24*time.Hour)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(p.dir, "postgres-")
	if err != nil {
		return nil, err
	}
	d.server, err = postgres.Start(ctx, postgres.Options{
		Dir: filepath.Join(dir, "pg"), Place: d.place, User: superuser, Password: d.password,
		Certificate: id.certificate, Key: id.key, Log: p.log,
	})
	return d, err
}

// address returns the address that MetalLB assigns to the Service: the requested one, if a pool
// contains it.
func (p *pgo) address(ctx context.Context, c *unstructured.Unstructured) (netip.Addr, error) {
	at, err := netip.ParseAddr(cluster.Text(c.Object, "spec", "service", "metadata", "annotations",
		listenAddress))
	if err != nil {
		return at,
			fmt.Errorf("the lab's MetalLB gives a Service the address in its annotation %s, and no other: %w",
				listenAddress, err)
	}
	all, err := p.w.List(ctx, pools(), "")
	if err != nil {
		return at, err
	}
	for _, pool := range all {
		//nolint:errcheck // MetalLB's webhook has validated it
		addresses, _, _ := unstructured.NestedStringSlice(pool.Object, "spec", "addresses")
		for _, text := range addresses {
			blocks, _ := parseBlocks(text) //nolint:errcheck // likewise
			for _, b := range blocks {
				if b.Contains(at) {
					return at, nil
				}
			}
		}
	}
	return at, fmt.Errorf("the Service %s-ha gets no address: %s is in no IPAddressPool", c.GetName(), at)
}

// begin runs the statements that the ConfigMap in databaseInitSQL holds, once. As
// with psql, one that fails does not keep the next from being run.
func (p *pgo) begin(ctx context.Context, c *unstructured.Unstructured, d *database) error {
	name, key := cluster.Text(c.Object, "spec", "databaseInitSQL", "name"),
		cluster.Text(c.Object, "spec", "databaseInitSQL", "key")
	if name == "" || d.begun {
		return nil
	}
	config, err := p.w.Typed.CoreV1().ConfigMaps(c.GetNamespace()).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("databaseInitSQL: %w", err)
	}
	statements, there := config.Data[key]
	if !there {
		return fmt.Errorf("databaseInitSQL: ConfigMap %s has no key %s", name, key)
	}
	if _, err := d.ask(ctx, "\\set ON_ERROR_STOP off\n"+statements); err != nil {
		return fmt.Errorf("databaseInitSQL: %w", err)
	}
	d.begun = true
	return nil
}

// ask runs statements as the superuser.
func (d *database) ask(ctx context.Context, statements string) (string, error) {
	return postgres.Query(ctx, d.place, superuser, superuser, d.password, statements)
}
