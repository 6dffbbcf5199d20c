package operators

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ephemeral-castle/castle/lab/internal/postgres"
)

// pgo is Crunchy's operator for PostgreSQL. Its database is real, but runs beside
// the cluster, at the address that the cluster's Service asks MetalLB for.
type pgo struct {
	w       *world
	dir     string
	running map[types.UID]*database
}

// database is a PostgreSQL that runs for a PostgresCluster.
type database struct {
	server   *postgres.Server
	place    netip.AddrPort
	name     string
	password string // the superuser's
}

func newPGO(w *world, dir string) *pgo {
	return &pgo{w: w, dir: dir, running: map[types.UID]*database{}}
}

func (p *pgo) close() {
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

func (p *pgo) look(ctx context.Context) error {
	operator, err := p.w.deployment(ctx, "pgo")
	if err != nil || operator == nil {
		return err
	}
	all, err := p.w.list(ctx, postgresClusters(), "")
	if err != nil {
		return err
	}
	var errs []error
	there := map[types.UID]bool{}
	for _, c := range all {
		there[c.GetUID()] = true
		errs = append(errs, about(titled(&c), p.reconcile(ctx, &c)))
	}
	for uid, d := range p.running {
		if !there[uid] {
			delete(p.running, uid)
			errs = append(errs, d.server.Close())
		}
	}
	return errors.Join(errs...)
}

func (p *pgo) reconcile(ctx context.Context, c *unstructured.Unstructured) error {
	users, err := p.users(ctx, c)
	if err != nil {
		return err
	}
	if p.running[c.GetUID()] == nil && p.w.passed("postgres "+string(c.GetUID()), 20*time.Second) {
		d, err := p.start(ctx, c, users)
		if err != nil {
			return err
		}
		p.running[c.GetUID()] = d
	}
	d := p.running[c.GetUID()]
	if d != nil {
		for _, u := range users {
			if err := p.adopt(ctx, c, u, d); err != nil {
				return err
			}
		}
	}
	return p.w.setStatus(ctx, postgresClusters(), c, func(status map[string]any) {
		ready := int64(0)
		if d != nil {
			ready = 1
			for typ, reason := range map[string]string{
				"PGBackRestRepoHostReady": "RepoHostReady", "PGBackRestReplicaRepoReady": "StanzaCreated", "PGBackRestReplicaCreate": "RepoBackupComplete",
			} {
				p.w.setCondition(status, typ, "True", reason, "", c.GetGeneration())
			}
		}
		status["instances"] = []any{map[string]any{"name": "instance1", "replicas": int64(1), "readyReplicas": ready, "updatedReplicas": int64(1)}}
		status["observedGeneration"] = c.GetGeneration()
	})
}

// user is one that a PostgresCluster asks for.
type user struct {
	name, options string
	databases     []string
	secret        *corev1.Secret
}

// users finds the Secret of each user. One that is there is adopted with its
// password; the others are made.
func (p *pgo) users(ctx context.Context, c *unstructured.Unstructured) ([]user, error) {
	wanted, _, err := unstructured.NestedSlice(c.Object, "spec", "users")
	if err != nil {
		return nil, err
	}
	var all []user
	for _, w := range wanted {
		one, _ := w.(map[string]any)
		u := user{name: text(one, "name"), options: text(one, "options")}
		if u.databases, _, err = unstructured.NestedStringSlice(one, "databases"); err != nil {
			return nil, err
		}
		found, err := p.w.typed.CoreV1().Secrets(c.GetNamespace()).List(ctx, metav1.ListOptions{
			LabelSelector: pgoGroup + "/cluster=" + c.GetName() + "," + pgoGroup + "/pguser=" + u.name,
		})
		if err != nil {
			return nil, err
		}
		if len(found.Items) > 0 {
			u.secret = &found.Items[0]
		} else if u.secret, err = p.secret(ctx, c, u.name); err != nil {
			return nil, err
		}
		all = append(all, u)
	}
	return all, nil
}

func (p *pgo) secret(ctx context.Context, c *unstructured.Unstructured, name string) (*corev1.Secret, error) {
	return p.w.typed.CoreV1().Secrets(c.GetNamespace()).Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: c.GetName() + "-pguser-" + name, Labels: map[string]string{
			pgoGroup + "/cluster": c.GetName(), pgoGroup + "/pguser": name, pgoGroup + "/role": "pguser",
		}},
		Data: map[string][]byte{"password": []byte(rand.Text())},
	}, metav1.CreateOptions{})
}

// start makes the database anew: nothing is kept over a restart of the machines.
func (p *pgo) start(ctx context.Context, c *unstructured.Unstructured, users []user) (*database, error) {
	address := text(c.Object, "spec", "service", "metadata", "annotations", listenAddress)
	at, err := netip.ParseAddr(address)
	if err != nil || text(c.Object, "spec", "service", "type") != "LoadBalancer" {
		return nil, fmt.Errorf("the lab's PostgreSQL listens where a Service of type LoadBalancer with the annotation %s is to; there is none", listenAddress)
	}
	d := &database{place: netip.AddrPortFrom(at, 5432), name: c.GetName(), password: rand.Text()}
	if port := whole(c.Object, "spec", "port"); port > 0 {
		d.place = netip.AddrPortFrom(at, uint16(port))
	}
	var before []string
	for _, u := range users {
		if len(u.databases) > 0 {
			d.name = u.databases[0]
		}
		before = append(before, fmt.Sprintf("CREATE ROLE %s WITH LOGIN PASSWORD '%s' %s", postgres.Quoted(u.name),
			strings.ReplaceAll(string(u.secret.Data["password"]), "'", "''"), u.options))
		for _, name := range u.databases {
			before = append(before, "GRANT ALL PRIVILEGES ON DATABASE "+postgres.Quoted(name)+" TO "+postgres.Quoted(u.name))
		}
	}
	id, err := newIdentity(c.GetNamespace(), c.GetName()+"-primary", p.w.now(), 24*time.Hour)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(p.dir, "postgres-")
	if err != nil {
		return nil, err
	}
	d.server, err = postgres.Start(ctx, postgres.Options{
		Dir: filepath.Join(dir, "pg"), Place: d.place, Database: d.name, User: superuser, Password: d.password, Before: before,
		Certificate: id.certificate, Key: id.key, Log: os.Stderr,
	})
	return d, err
}

// adopt adds to a user's Secret what PGO does, and leaves the password.
func (p *pgo) adopt(ctx context.Context, c *unstructured.Unstructured, u user, d *database) error {
	if len(u.secret.Data["verifier"]) > 0 {
		return nil
	}
	verifier, err := postgres.Query(ctx, d.place, d.name, superuser, d.password, "SELECT rolpassword FROM pg_authid WHERE rolname = '"+u.name+"'")
	if err != nil {
		return err
	}
	s, host := u.secret.DeepCopy(), c.GetName()+"-primary."+c.GetNamespace()+".svc"
	password := string(s.Data["password"])
	for key, value := range map[string]string{
		"verifier": verifier, "host": host, "port": fmt.Sprint(d.place.Port()), "user": u.name, "dbname": d.name,
		"uri": fmt.Sprintf("postgresql://%s:%s@%s:%d/%s", u.name, password, host, d.place.Port(), d.name),
	} {
		s.Data[key] = []byte(value)
	}
	s.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(c, c.GroupVersionKind())}
	_, err = p.w.typed.CoreV1().Secrets(s.Namespace).Update(ctx, s, metav1.UpdateOptions{})
	return unless(err, apierrors.IsConflict)
}
