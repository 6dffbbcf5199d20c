package postgres

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ephemeral-castle/castle/internal/foreign"
	"github.com/ephemeral-castle/castle/internal/kube/client"
)

const (
	group   = "postgres-operator.crunchydata.com"
	version = group + "/v1beta1"
	kind    = "PostgresCluster"
)

// The conditions of a PostgresCluster, and the reason of one (PGO v5.8, internal/controller/postgrescluster).
const (
	initialized   = "PostgresDataInitialized"
	restoreFailed = "PGBackRestRestoreFailed"
	backedUp      = "PGBackRestReplicaCreate"
	repoReady     = "PGBackRestReplicaRepoReady"
)

// postgresCluster is what castle reads of a PostgresCluster.
type postgresCluster struct {
	title       string
	path        string // where it archives
	restores    bool   // it has a dataSource
	from        string // the path of that
	options     string // of its restore
	initialized bool
	failed      string // why the restore failed
	backedUp    bool
	waits       string // what the first backup waits for
}

// read reads the PostgresCluster. The error is a finding of the kind gate.NotFound if there is none.
func (d *database) read(ctx context.Context) (is postgresCluster, err error) {
	err = client.Do(ctx, d.target, func(ctx context.Context, a *client.API) error {
		in, err := a.Resolve(ctx, version, kind)
		if client.IsNotServed(err) {
			return client.NotFound(kind, d.namespace, d.pgo)
		}
		if err != nil {
			return err
		}
		o, err := a.Get(ctx, client.Selection{Resource: in.GroupVersionResource, Namespace: d.namespace,
			Name: d.pgo}, kind)
		if err != nil {
			return err
		}
		is = describe(o)
		return nil
	})
	return is, err
}

func describe(o *client.Object) postgresCluster {
	is := postgresCluster{title: client.Title(o),
		path: client.Text(o, "spec", "backups", "pgbackrest", "global", "repo1-path"),
		from: client.Text(o, "spec", "dataSource", "pgbackrest", "global", "repo1-path")}
	options, _, _ := unstructured.NestedStringSlice(o.Object, "spec", "dataSource", "pgbackrest", "options")
	is.options = strings.Join(options, " ")
	spec, _ := o.Object["spec"].(map[string]any)
	_, is.restores = spec["dataSource"]
	if c, has := client.ConditionOf(o, initialized); has {
		is.initialized = c.Status == "True"
		if c.Reason == restoreFailed {
			is.failed = foreign.OneLine(c.Why())
		}
	}
	if c, has := client.ConditionOf(o, backedUp); has {
		is.backedUp, is.waits = c.Status == "True", foreign.OneLine(c.Why())
	} else if c, has := client.ConditionOf(o, repoReady); has && c.Status != "True" {
		is.waits = foreign.OneLine(c.Why())
	}
	return is
}

// superuser is the user whose Secret PGO makes if spec.users names it.
const superuser = "postgres"

// secretOf names the Secret of a user, as PGO does.
func (d *database) secretOf(user string) string { return d.pgo + "-pguser-" + user }

// secret reads a field of a Secret.
func (d *database) secret(ctx context.Context, name, key string) (value []byte, err error) {
	err = client.Do(ctx, d.target, func(ctx context.Context, a *client.API) error {
		o, err := a.Get(ctx, client.Selection{Resource: client.Core("secrets"), Namespace: d.namespace,
			Name: name}, "Secret")
		if err != nil {
			return err
		}
		value, err = base64.StdEncoding.DecodeString(client.Text(o, "data", key))
		if err != nil || len(value) == 0 {
			err = fmt.Errorf("%s has no %s", client.Title(o), key)
		}
		return err
	})
	return value, err
}
