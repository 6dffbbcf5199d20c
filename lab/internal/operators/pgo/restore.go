package pgo

import (
	"context"
	"maps"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ephemeral-castle/castle/lab/internal/postgres"

	"github.com/ephemeral-castle/castle/lab/internal/operators/cluster"
	"github.com/ephemeral-castle/castle/lab/internal/operators/identity"
)

// authorityLife is how long the authority is good: as long as its certificate.
const authorityLife = 365 * 24 * time.Hour

const (
	dataInitialized = "PostgresDataInitialized"
	progressing     = "PGBackRestoreProgressing"
)

// restore has the data of a PostgresCluster come from its data source, and reports whether the database has
// to wait for it. PGO compares the id of the last restore in the status with that of the data source. So a
// data source that is added to a database that runs replaces its data, too.
func (p *PGO) restore(ctx context.Context, c *unstructured.Unstructured, changes *changes) (bool, error) {
	source := cluster.Nested(c.Object, "spec", "dataSource", "pgbackrest")
	repo, _ := source["repo"].(map[string]any)
	if len(repositories(repo)) == 0 {
		return false, nil
	}
	labels := map[string]string{group + "/cluster": c.GetName(), group + "/pgbackrest": "",
		group + "/pgbackrest-restore": ""}
	there, err := p.found(ctx, c, labels)
	if err != nil {
		return true, err
	}
	id := "~pgo-bootstrap-" + c.GetName()
	if cluster.Text(c.Object, "status", "pgbackrest", "restore", "id") != id {
		if there != nil {
			return true, p.deleteJob(ctx, there)
		}
		return true, p.prepareRestore(c, id, changes)
	}
	if cluster.ConditionOf(c.Object, dataInitialized) == "True" {
		return false, nil
	}
	options, _, err := unstructured.NestedStringSlice(source, "options")
	if err != nil {
		return true, err
	}
	if message := refusedOption(options); message != "" {
		p.warn(ctx, c, "InvalidDataSource", message)
		return true, nil
	}
	if there != nil && p.slow.Holds() {
		return true, nil
	}
	done, err := p.follow(ctx, c, there, job{name: c.GetName() + "-pgbackrest-restore", labels: labels,
		command: []string{"bash", "-ceu", "--", "pgbackrest restore"},
		do: func(ctx context.Context) error {
			return p.restored(ctx, c, source, repo, options)
		}})
	if err != nil {
		return true, err
	}
	changes.add(func(status map[string]any) {
		backups, _ := status["pgbackrest"].(map[string]any)
		backups = maps.Clone(backups)
		backups["restore"] = jobStatus(id, done)
		status["pgbackrest"] = backups
		switch {
		case succeeded(done):
			p.w.SetCondition(status, dataInitialized, "True", "PGBackRestRestoreComplete",
				"pgBackRest restore completed successfully", c.GetGeneration())
			cluster.DropCondition(status, progressing)
		case failed(done):
			p.w.SetCondition(status, dataInitialized, "False", "PGBackRestRestoreFailed",
				"pgBackRest restore failed", c.GetGeneration())
		}
	})
	return true, nil
}

// prepareRestore ends the database, whose data the restore then replaces.
func (p *PGO) prepareRestore(c *unstructured.Unstructured, id string, changes *changes) error {
	d := p.running[c.GetUID()]
	delete(p.running, c.GetUID())
	changes.add(func(status map[string]any) {
		status["pgbackrest"] = map[string]any{"restore": jobStatus(id, nil)}
		cluster.DropCondition(status, dataInitialized)
		p.w.SetCondition(status, progressing, "True", "ReadyForRestore", "Restoring cluster in-place",
			c.GetGeneration())
	})
	if d == nil {
		return nil
	}
	return d.server.Close()
}

// refusedOption is the message of the event about an option that only PGO may set, and after which it does
// nothing.
func refusedOption(options []string) string {
	for _, o := range options {
		for _, name := range []string{"--repo", "--stanza", "--pg1-path", "--target-action", "--link-map"} {
			if o == name || strings.HasPrefix(o, name+"=") || strings.HasPrefix(o, name+" ") {
				return "Option '" + name + "' is not allowed: the operator will automatically set this option"
			}
		}
	}
	return ""
}

// restored is the work of the Job. It knows the data source alone: what the backups of the same
// PostgresCluster are configured with is not inherited.
func (p *PGO) restored(ctx context.Context, c *unstructured.Unstructured, source, repo map[string]any,
	options []string) error {
	b := postgres.Backups{Database: p.options(c), Name: "restore", Stanza: cluster.Text(source, "stanza")}
	if b.Stanza == "" {
		b.Stanza = stanza
	}
	files, err := p.projected(ctx, c, source)
	if err != nil {
		return err
	}
	if err := b.Configure(global(repositories(repo), cluster.Nested(source, "global")), files); err != nil {
		return err
	}
	// PGO hands all of them to a shell.
	options = append([]string{"--repo=" + repoNumber(repo)}, strings.Fields(strings.Join(options, " "))...)
	for _, o := range options {
		if strings.HasPrefix(o, "--target=") || strings.HasPrefix(o, "--target ") {
			options = append(options, "--target-action=promote")
			break
		}
	}
	return b.Restore(ctx, options...)
}

// diverges is the fault password-diverged of a database that was restored, once.
func (p *PGO) diverges(c *unstructured.Unstructured) func() bool {
	return func() bool {
		if !p.diverging || cluster.ConditionOf(c.Object, dataInitialized) != "True" {
			return false
		}
		p.diverging = false
		p.w.Tell("password-diverged", false)
		p.w.Tell("password-diverged", true)
		return true
	}
}

// certificate keeps the Secret with the certificate of a PostgreSQL server, and the authority that clients
// trust for it.
func (p *PGO) certificate(ctx context.Context, c *unstructured.Unstructured) (*identity.Identity, error) {
	name := c.GetName() + "-cluster-cert"
	there, err := p.w.Typed.CoreV1().Secrets(c.GetNamespace()).Get(ctx, name, metav1.GetOptions{})
	if err == nil {
		if id := identity.Of(there.Data, p.w.Now()); id != nil {
			return id, nil
		}
	} else if !apierrors.IsNotFound(err) {
		return nil, err
	}
	var names []string
	for _, service := range []string{c.GetName() + "-primary", c.GetName() + "-replicas"} {
		full := service + "." + c.GetNamespace() + ".svc"
		names = append(names, full+".cluster.local.", full, service+"."+c.GetNamespace(), service)
	}
	id, err := identity.New(names, p.w.Now(), authorityLife)
	if err != nil {
		return nil, err
	}
	return id, p.applySecret(ctx, c, name, map[string]string{group + "/cluster": c.GetName(),
		group + "/cluster-certificate": "postgres-tls"}, id.Data())
}
