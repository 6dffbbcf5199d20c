// Package pgo does in the lab the work of Crunchy's operator for PostgreSQL, PGO. Its database and its
// backups to S3 are real, but run beside the cluster, at the address that the cluster's Service requests from
// MetalLB. Their version is that of the machine's PostgreSQL, not that of the PostgresCluster.
//
// The facts are PGO's of releases 5.7 and 5.8: internal/controller/postgrescluster, internal/pgbackrest,
// internal/postgres/users.go and hba.go.
package pgo

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ephemeral-castle/castle/lab/internal/postgres"

	"github.com/ephemeral-castle/castle/lab/internal/operators/cluster"
	"github.com/ephemeral-castle/castle/lab/internal/operators/identity"
)

// PGO is the operator.
type PGO struct {
	w       *cluster.View
	dir     string
	pooled  func(context.Context, netip.Addr) (bool, error) // whether MetalLB may give an address
	log     io.Writer
	known   map[types.UID]bool // PostgresClusters that were there
	running map[types.UID]*database
	warned  map[string]string // by cluster and reason: the last event
	works   map[string]*work
	all     sync.WaitGroup  // of works
	refused map[string]bool // steps that failed and wait before they are taken again

	slow        *cluster.Fault // restore-slow
	behind      time.Duration  // wal-behind, or the rest of it
	behindSince time.Time
	incomplete  atomic.Bool // backup-incomplete is yet to come
	diverging   bool        // and password-diverged
}

// database is a PostgreSQL that runs for a PostgresCluster.
type database struct {
	server  *postgres.Server
	backups *postgres.Backups // nil without a repository in S3
	fresh   bool              // its data was made for this start
	written string            // the revision of users and databases that it has
	begun   bool              // the user's own statements were run
}

// New returns the operator of a cluster, which keeps its databases in a directory. MetalLB gives them the
// addresses that pooled allows.
func New(w *cluster.View, dir string, pooled func(context.Context, netip.Addr) (bool, error)) *PGO {
	p := &PGO{w: w, dir: dir, pooled: pooled, log: os.Stderr,
		known: map[types.UID]bool{}, running: map[types.UID]*database{},
		warned: map[string]string{}, works: map[string]*work{}, refused: map[string]bool{},
		slow: w.Fault("restore-slow", "postgresclusters"), behind: w.Faults.Times["wal-behind"],
		diverging: w.Faults.PasswordDiverged}
	p.incomplete.Store(w.Faults.BackupIncomplete)
	return p
}

// Close ends the databases, and what else runs for them.
func (p *PGO) Close() {
	for _, w := range p.works {
		w.cancel()
	}
	p.all.Wait()
	for _, d := range p.running {
		d.server.Close() //nolint:errcheck // it ends with the process otherwise
		if d.backups != nil {
			d.backups.Stop(context.Background()) //nolint:errcheck // likewise
		}
	}
}

func postgresClusters() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group, Version: "v1beta1", Resource: "postgresclusters"}
}

const (
	group         = "postgres-operator.crunchydata.com"
	superuser     = "postgres"
	listenAddress = "metallb.io/loadBalancerIPs"
)

// Look takes the next step that is due for each PostgresCluster.
func (p *PGO) Look(ctx context.Context) error {
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
		there[c.GetUID()], p.known[c.GetUID()] = true, true
		errs = append(errs, cluster.About(cluster.Titled(&c), p.reconcile(ctx, &c)))
	}
	for uid := range p.known {
		if !there[uid] {
			p.remove(ctx, uid, p.running[uid])
			delete(p.known, uid)
			delete(p.running, uid)
		}
	}
	return errors.Join(append(errs, p.removed(ctx)...)...)
}

// reconcile fills the users' Secrets before there is a database, and tells that of
// the users once it runs. The status has seen the cluster even if that fails, which
// is all that Flux's health check wants of it.
func (p *PGO) reconcile(ctx context.Context, c *unstructured.Unstructured) error {
	users, err := p.users(ctx, c)
	id, certified := p.certificate(ctx, c)
	due := p.w.Passed("postgres "+string(c.GetUID()), 20*time.Second)
	changes := &changes{}
	if err = errors.Join(err, certified); err == nil && due && exposed(c) {
		if waits, failed := p.restore(ctx, c, changes); failed != nil || waits {
			err = failed
		} else {
			err = p.serve(ctx, c, users, id, changes)
		}
	}
	return errors.Join(err, p.w.SetStatus(ctx, postgresClusters(), c, func(status map[string]any) {
		d := p.running[c.GetUID()]
		ready := due && (d != nil || !exposed(c))
		p.report(c, status, due, ready)
		if d != nil && d.begun {
			status["databaseInitSQL"] = cluster.Text(c.Object, "spec", "databaseInitSQL", "name")
		}
		if d != nil && d.written != "" {
			status["usersRevision"] = d.written
		}
		status["instances"], status["observedGeneration"] = instances(c, ready), c.GetGeneration()
		for _, change := range *changes {
			change(status)
		}
	}))
}

// changes are what the steps of a look change in the status, in their order.
type changes []func(status map[string]any)

func (c *changes) add(change func(status map[string]any)) { *c = append(*c, change) }

// serve has a database run that knows the users, and its backups.
func (p *PGO) serve(ctx context.Context, c *unstructured.Unstructured, users []user, id *identity.Identity,
	changes *changes) error {
	d := p.running[c.GetUID()]
	if d != nil && d.ended() {
		p.warn(ctx, c, "DatabaseEnded", d.server.Last())
		delete(p.running, c.GetUID())
		d = nil
	}
	if d == nil {
		if p.removing() {
			return nil // its address may not be free yet
		}
		var err error
		if d, err = p.start(ctx, c, id); err != nil {
			p.warn(ctx, c, "DatabaseNotStarted", err.Error())
			return err
		}
		p.running[c.GetUID()] = d
	}
	return errors.Join(d.write(ctx, users, p.diverges(c)), p.begin(ctx, c, d), p.backUp(ctx, c, d, changes))
}

func (d *database) ended() bool {
	select {
	case <-d.server.Done():
		return true
	default:
		return false
	}
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

// folder is where the data of a PostgresCluster is: it lasts as long as that and as the machines.
func (p *PGO) folder(uid types.UID) string { return filepath.Join(p.dir, databases, string(uid)) }

// databases is the directory with the data of all databases.
const databases = "postgres"

// RemoveDatabases deletes the data of all databases, as the loss of the machines does.
func RemoveDatabases(dir string) error {
	from := filepath.Join(dir, databases)
	lost := from + "-lost" // a server that is about to end may still write
	if err := errors.Join(os.RemoveAll(lost), os.Rename(from, lost)); err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		return err
	}
	return os.RemoveAll(lost)
}

// options are those of the database of a PostgresCluster.
func (p *PGO) options(c *unstructured.Unstructured) postgres.Options {
	o := postgres.Options{Dir: p.folder(c.GetUID()), User: superuser, Password: rand.Text(), Log: p.log}
	if port := cluster.Whole(c.Object, "spec", "port"); port > 0 {
		o.Place = netip.AddrPortFrom(netip.Addr{}, uint16(port))
	} else {
		o.Place = netip.AddrPortFrom(netip.Addr{}, 5432)
	}
	return o
}

// start serves the data of a database; a new one if there is none.
func (p *PGO) start(ctx context.Context, c *unstructured.Unstructured,
	id *identity.Identity) (*database, error) {
	at, err := p.address(ctx, c)
	if err != nil {
		return nil, err
	}
	if has, wanted := int64(postgres.Release()),
		cluster.Whole(c.Object, "spec", "postgresVersion"); has < wanted {
		fmt.Fprintf(p.log, "lab: %s is PostgreSQL %d, and that of the lab is %d: what a later release "+
			"refuses passes here "+
			//nolint:errcheck // a log
			"(from 16, CREATEROLE grants only the roles that it has with ADMIN OPTION)\n", cluster.Titled(c),
			wanted, has)
	}
	o := p.options(c)
	o.Place, o.Certificate, o.Key = netip.AddrPortFrom(at, o.Place.Port()), id.Certificate, id.Key
	d := &database{fresh: !postgres.HasData(o.Dir)}
	if d.backups, err = p.backups(ctx, c, o); err != nil {
		return nil, err
	}
	if d.backups != nil {
		o.ArchiveCommand, o.Environ = p.archiveCommand(d.backups), d.backups.Environ()
		if !d.fresh { // what archived for a server that was killed may still run
			if err := d.backups.Stop(ctx); err != nil {
				return nil, err
			}
		}
	}
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return nil, err
	}
	if d.server, err = postgres.Start(ctx, o); err != nil {
		return nil, err
	}
	if !d.fresh { // PGO compares with what it has written, not with the database
		d.written = cluster.Text(c.Object, "status", "usersRevision")
		name := cluster.Text(c.Object, "status", "databaseInitSQL")
		d.begun = name != "" && name == cluster.Text(c.Object, "spec", "databaseInitSQL", "name")
	}
	return d, nil
}

// address returns the address that MetalLB assigns to the Service: the requested one, if a pool
// contains it.
func (p *PGO) address(ctx context.Context, c *unstructured.Unstructured) (netip.Addr, error) {
	at, err := netip.ParseAddr(cluster.Text(c.Object, "spec", "service", "metadata", "annotations",
		listenAddress))
	if err != nil {
		return at,
			fmt.Errorf("the lab's MetalLB gives a Service the address in its annotation %s, and no other: %w",
				listenAddress, err)
	}
	if there, err := p.pooled(ctx, at); err != nil || there {
		return at, err
	}
	return at, fmt.Errorf("the Service %s-ha gets no address: %s is in no IPAddressPool", c.GetName(), at)
}

// begin runs the statements that the ConfigMap in databaseInitSQL holds, once. As
// with psql, one that fails does not keep the next from being run.
func (p *PGO) begin(ctx context.Context, c *unstructured.Unstructured, d *database) error {
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
	return d.server.Query(ctx, superuser, statements)
}
