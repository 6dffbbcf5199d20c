// Package postgres keeps a PostgreSQL database alive over the end of its cluster: a PostgresCluster of
// Crunchy's operator (PGO v5) that archives with pgBackRest into a bucket. pgBackRest saves and restores; PGO
// runs it. castle ends the writes, has PostgreSQL hand over the last of its log, and reads in the bucket
// itself whether all is there that a restore needs (repository.go). After the restore it compares what is in
// the database (database.go).
package postgres

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/foreign"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/store"
	"github.com/ephemeral-castle/castle/internal/survivor"
	"github.com/ephemeral-castle/castle/internal/survivor/bucket"
)

// Type is the type of a survives block: a PostgresCluster with pgBackRest in S3.
func Type() survivor.Type {
	address := bucket.Required("host:port at which castle reaches the database")
	address.Valid = gate.ValidForm(func(text string) (string, error) {
		host, _, err := net.SplitHostPort(text)
		return host, err
	}, "of the form host:port")
	tables := gate.Attribute{Type: cty.List(cty.String), Valid: validTables,
		Help: "tables whose rows are counted and compared after a restore, such as [\"public.orders\"]"}
	attributes := bucket.Attributes("where in the bucket the data are, such as \"/database\"; each birth " +
		"has a folder there")
	maps.Copy(attributes, map[string]gate.Attribute{
		"namespace": bucket.Required("the namespace of the PostgresCluster"),
		"cluster":   bucket.Required("the name of the PostgresCluster"),
		"address":   address,
		"database":  bucket.Required("the database in which castle leaves a marker and compares tables"),
		"tables":    tables,
	})
	return survivor.Type{
		Name: "postgres", Summary: "a PostgresCluster of PGO v5 that archives with pgBackRest into a bucket",
		Kubernetes: true, Attributes: attributes,
		New: func(name string, target gate.Target, v gate.Values) (survivor.Survivor, error) {
			return newDatabase(name, target, v)
		},
	}
}

var table = regexp.MustCompile(`^[^."]+\.[^."]+$`)

func validTables(v cty.Value) error {
	for it := v.ElementIterator(); it.Next(); {
		if _, name := it.Element(); name.IsNull() || !table.MatchString(name.AsString()) {
			return errors.New("a table is named with its schema, such as \"public.orders\"")
		}
	}
	return nil
}

// database is a PostgresCluster and its repository.
type database struct {
	name            string // of the gate or block, for messages
	target          gate.Target
	namespace, pgo  string // where the PostgresCluster is, and its name
	address, dbname string
	tables          []string
	base            string // the path below which births have their folders
	documents       *bucket.Documents
}

func newDatabase(name string, target gate.Target, v gate.Values) (*database, error) {
	d := &database{name: name, target: target, namespace: v.String("namespace"), pgo: v.String("cluster"),
		address: v.String("address"), dbname: v.String("database"), base: v.String("path")}
	if err := v.Decode("tables", &d.tables); err != nil {
		return nil, fmt.Errorf("%s: tables: %w", name, err)
	}
	var err error
	d.documents, err = bucket.New(name, v, d.base, d.valid)
	return d, err
}

// saveTime bounds how long castle waits until the bucket has a save.
const saveTime = 5 * time.Minute

// Freeze makes every new session read-only and ends those that there are. The setting is none of a database
// or a role: those would be restored with the data. A database that answers may have been written until then.
func (d *database) Freeze(ctx context.Context) (bool, error) {
	err := d.within(ctx, func(c *pgx.Conn) error {
		if err := set(ctx, c, endWrites); err != nil {
			return err
		}
		return endSessions(ctx, c)
	})
	return err == nil, err
}

// Thaw undoes Freeze.
func (d *database) Thaw(ctx context.Context) error {
	return d.within(ctx, func(c *pgx.Conn) error { return set(ctx, c, permitWrites) })
}

// Live describes the PostgresCluster. A repository elsewhere than below the path of the block is an error:
// castle would not find its saves.
func (d *database) Live(ctx context.Context) (*survivor.Living, error) {
	is, err := d.read(ctx)
	if gate.KindOf(err) == gate.NotFound {
		return nil, nil
	}
	if err == nil && is.path != "" && !d.below(is.path) {
		err = fmt.Errorf("%s archives to %s, which is no folder in the path %s of the survives block",
			is.title, foreign.OneLine(is.path), d.base)
	}
	return &survivor.Living{Birth: strings.TrimPrefix(is.path, d.base+"/"), Path: is.path, From: is.from,
		Options: is.options}, err
}

// InUse is false for a PostgresCluster that does not exist, or that PGO still restores.
func (d *database) InUse(ctx context.Context) (bool, error) {
	is, err := d.read(ctx)
	if gate.KindOf(err) == gate.NotFound {
		return false, nil
	}
	return !is.restores || is.initialized, err
}

// Options returns the options of pgbackrest restore. The set may have been taken while all writes were off.
func (d *database) Options(s survivor.Save, set string, exactly bool) string {
	target := "--type=default"
	if exactly && s.Position != nil {
		target = "--type=lsn --target=" + s.Position[lsn]
	}
	return target + " --set=" + set + " --recovery-option=default_transaction_read_only=off"
}

// Path is a folder of each birth's own: two databases must not archive into one repository.
func (d *database) Path(birth string) string { return d.base + "/" + birth }

// Restore leaves it to PGO, which restores while it makes the PostgresCluster.
func (d *database) Restore(context.Context, survivor.Birth, func(string)) error { return nil }

// Save writes a marker, has PostgreSQL archive its log up to there, and waits until the bucket holds a backup
// and all of the log from its beginning to the marker. It writes the document of the save last.
func (d *database) Save(ctx context.Context, b survivor.Birth, frozen bool) (*survivor.Save, error) {
	ctx, stop := context.WithTimeoutCause(ctx, saveTime, fmt.Errorf("not saved within %s", saveTime))
	defer stop()
	s, err := d.mark(ctx, b, frozen)
	if err != nil {
		return nil, err
	}
	var whole *backup
	archived := gate.Gate{Name: d.name, Check: func(ctx context.Context) (err error) {
		if whole, _, err = d.newest(ctx, *s); err == nil {
			return nil
		}
		if refused, is := errors.AsType[*store.Error](err); is && refused.Kind != store.Away {
			return gate.Permanent(err)
		}
		return errors.Join(err, d.archiver(ctx))
	}}
	if err := gate.Wait(ctx, archived, gate.Policy{Timeout: saveTime}, gate.Listener{}); err != nil {
		return nil, err
	}
	s.Position["backup"], s.Bytes = whole.label, whole.Bytes
	if err := d.documents.Write(ctx, s); err != nil {
		return nil, err
	}
	if !frozen { // else somebody may be about to restore one
		d.documents.Prune(ctx) //nolint:errcheck // the next save deletes them
	}
	return s, nil
}

// Restored compares the PostgresCluster with its birth.
func (d *database) Restored(ctx context.Context, b survivor.Birth) error {
	is, err := d.read(ctx)
	if err != nil {
		return err
	}
	switch {
	case is.path != b.Path:
		return &gate.Finding{Object: is.title, Text: fmt.Sprintf("archives to %q instead of %q: its "+
			"repo1-path has to be the path of this birth, survives.NAME.path", is.path, b.Path)}
	case is.restores && b.From == nil:
		return gate.Permanent(fmt.Errorf("%s has a dataSource, although this birth is new: PGO would delete "+
			"its data and restore others", is.title))
	case !is.restores && b.From != nil && b.Restored.IsZero():
		return &gate.Finding{Object: is.title, Text: "has no dataSource, although it was to be restored " +
			"from " + b.From.String()}
	case is.restores && is.from != b.From.Path:
		return gate.Permanent(fmt.Errorf("%s restores from %q instead of %q", is.title, is.from, b.From.Path))
	case is.failed != "":
		return gate.Permanent(fmt.Errorf("%s: the restore failed: %s", is.title, is.failed))
	case is.restores && !is.initialized:
		return &gate.Finding{Kind: gate.Waits, Object: is.title, Text: "is being restored"}
	}
	if b.From != nil && b.Restored.IsZero() {
		if err := d.compare(ctx, *b.From); err != nil {
			return err
		}
	}
	if !is.backedUp {
		return &gate.Finding{Kind: gate.Waits, Object: is.title, Text: "has no first backup in its " +
			"repository yet" + strings.TrimSuffix(": "+is.waits, ": ")}
	}
	return nil
}
