package postgres

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/siderolabs/gen/xslices"

	"github.com/ephemeral-castle/castle/internal/foreign"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/survivor"
)

// Keys of a save's position.
const (
	timeline = "timeline"
	lsn      = "lsn"
	lastWAL  = "wal"           // the segment that holds the marker
	segments = "segment_bytes" // the size of one
)

// keptMarkers is how many of castle's markers stay in the database.
const keptMarkers = 20

// badPassword is PostgreSQL's code for a password that is not the user's.
const badPassword = "28P01"

// connect logs in as the superuser. The session writes, also where the database is frozen, and prints rows
// the same way in every time zone.
func (d *database) connect(ctx context.Context) (*pgx.Conn, error) {
	authority, err := d.secret(ctx, d.pgo+"-cluster-cert", "ca.crt")
	if err != nil {
		return nil, err
	}
	password, err := d.secret(ctx, d.secretOf(superuser), "password")
	if gate.KindOf(err) == gate.NotFound {
		err = fmt.Errorf("%w\n  castle needs the superuser: spec.users of the PostgresCluster has to name "+
			superuser, err)
	}
	if err != nil {
		return nil, err
	}
	host, port, err := net.SplitHostPort(d.address)
	if err != nil {
		return nil, err
	}
	// What it takes from the environment is replaced below.
	config, err := pgx.ParseConfig("sslmode=disable host=" + host + " port=" + port)
	if err != nil {
		return nil, err
	}
	trusted := x509.NewCertPool()
	if !trusted.AppendCertsFromPEM(authority) {
		return nil, fmt.Errorf("secret %s/%s-cluster-cert has no certificate in ca.crt", d.namespace, d.pgo)
	}
	config.User, config.Password, config.Database = superuser, string(password), d.dbname
	config.TLSConfig = &tls.Config{RootCAs: trusted, ServerName: d.pgo + "-primary",
		MinVersion: tls.VersionTLS12}
	config.ConnectTimeout = 5 * time.Second
	config.RuntimeParams = map[string]string{"application_name": "castle",
		"default_transaction_read_only": "off", "synchronous_commit": "on", "statement_timeout": "120s",
		"TimeZone": "UTC", "DateStyle": "ISO", "IntervalStyle": "postgres", "extra_float_digits": "1",
		"bytea_output": "hex"}
	c, err := pgx.ConnectConfig(ctx, config)
	if refused, is := errors.AsType[*pgconn.PgError](err); is && refused.Code == badPassword {
		return nil, &gate.Finding{Object: "database at " + d.address, Err: err, Text: fmt.Sprintf("refuses "+
			"the password in the Secret %s/%s: a restored database may have an older one, which PGO "+
			"replaces only in a new PostgresCluster; set it there: ALTER ROLE %s PASSWORD …", d.namespace,
			d.secretOf(superuser), superuser)}
	}
	if err != nil {
		return nil, fmt.Errorf("database at %s: %s", d.address, foreign.OneLine(err.Error()))
	}
	return c, nil
}

// within runs statements in a session of their own.
func (d *database) within(ctx context.Context, do func(*pgx.Conn) error) error {
	c, err := d.connect(ctx)
	if err != nil {
		return err
	}
	if err = do(c); err != nil {
		err = fmt.Errorf("database at %s: %w", d.address, err)
	}
	return errors.Join(err, c.Close(context.WithoutCancel(ctx)))
}

// Statements that end and permit writing.
const (
	endWrites    = "ALTER SYSTEM SET default_transaction_read_only = on"
	permitWrites = "ALTER SYSTEM RESET default_transaction_read_only"
)

// set changes the configuration of the server.
func set(ctx context.Context, c *pgx.Conn, statement string) error {
	for _, one := range []string{statement, "SELECT pg_reload_conf()"} {
		if _, err := c.Exec(ctx, one); err != nil {
			return err
		}
	}
	return nil
}

// endSessions ends all sessions but its own, and returns once none of them runs: a new one is read-only,
// unless its client asks for more.
func endSessions(ctx context.Context, c *pgx.Conn) error {
	const others = ` FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()`
	var began time.Time
	if err := c.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&began); err != nil {
		return err
	}
	if _, err := c.Exec(ctx, "SELECT pg_terminate_backend(pid)"+others); err != nil {
		return err
	}
	ended := gate.Gate{Name: "sessions", Check: func(ctx context.Context) error {
		var left int
		err := c.QueryRow(ctx, "SELECT count(*)"+others+" AND backend_start < $1", began).Scan(&left)
		if err == nil && left > 0 {
			err = fmt.Errorf("%d sessions from before still run", left)
		}
		return err
	}}
	return gate.Wait(ctx, ended, gate.Policy{Timeout: 30 * time.Second, Most: time.Second}, gate.Listener{})
}

// mark writes a marker and returns the save that ends with it. PostgreSQL then archives its log's segment.
func (d *database) mark(ctx context.Context, b survivor.Birth, frozen bool) (*survivor.Save, error) {
	s, err := survivor.NewSave(b, frozen)
	if err != nil {
		return nil, err
	}
	return s, d.within(ctx, func(c *pgx.Conn) error {
		for _, statement := range []string{"CREATE SCHEMA IF NOT EXISTS castle",
			"CREATE TABLE IF NOT EXISTS castle.saves (id text PRIMARY KEY, at timestamptz NOT NULL)"} {
			if _, err := c.Exec(ctx, statement); err != nil {
				return err
			}
		}
		if frozen { // before the marker: its segment is to be the one that is closed
			if s.Tables, err = countTables(ctx, c, d.tables); err != nil {
				return err
			}
		}
		if _, err := c.Exec(ctx, "INSERT INTO castle.saves VALUES ($1, $2)", s.ID, s.Time); err != nil {
			return err
		}
		if _, err := c.Exec(ctx, "DELETE FROM castle.saves WHERE id <> $1 AND id NOT IN "+
			"(SELECT id FROM castle.saves ORDER BY at DESC LIMIT $2)", s.ID, keptMarkers); err != nil {
			return err
		}
		var at, wal, bytes string
		if err := c.QueryRow(ctx, `SELECT l::text, pg_walfile_name(l), (SELECT setting FROM pg_settings
			WHERE name = 'wal_segment_size'), current_setting('server_version_num')
			FROM pg_current_wal_insert_lsn() AS l`).Scan(&at, &wal, &bytes, &s.Release); err != nil {
			return err
		}
		if _, err := c.Exec(ctx, "SELECT pg_switch_wal()"); err != nil {
			return err
		}
		s.Position = map[string]string{lsn: at, lastWAL: wal, timeline: wal[:8], segments: bytes}
		return nil
	})
}

// countTables counts the rows of tables, which may not exist, and sums their checksums, all at one moment.
func countTables(ctx context.Context, c *pgx.Conn, names []string) (all []survivor.Table, err error) {
	all = []survivor.Table{}
	moment := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	return all, pgx.BeginTxFunc(ctx, c, moment, func(tx pgx.Tx) error {
		for _, name := range names {
			t := survivor.Table{Name: name, Sum: "absent"}
			schema, of, _ := strings.Cut(name, ".")
			quoted, there := pgx.Identifier{schema, of}.Sanitize(), false
			err := tx.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL", quoted).Scan(&there)
			if err != nil {
				return err
			}
			if !there {
				all = append(all, t)
				continue
			}
			// The first 60 bits of MD5: a sum of these does not depend on the order of the rows.
			query := `SELECT count(*),
				coalesce(sum(('x' || substr(md5(t::text), 1, 15))::bit(60)::bigint), 0)::text
				FROM ` + quoted + " AS t"
			if err := tx.QueryRow(ctx, query).Scan(&t.Rows, &t.Sum); err != nil {
				return fmt.Errorf("table %s: %w", name, err)
			}
			all = append(all, t)
		}
		return nil
	})
}

// compare returns nil if the database holds all that a save has. Without Frozen, more may have been written
// after the save and restored with it, so that the tables may differ.
func (d *database) compare(ctx context.Context, s survivor.Save) error {
	return d.within(ctx, func(c *pgx.Conn) error {
		var recovers, readOnly bool
		err := c.QueryRow(ctx, `SELECT pg_is_in_recovery(), EXISTS (SELECT FROM pg_file_settings
			WHERE name = 'default_transaction_read_only' AND setting = 'on')`).Scan(&recovers, &readOnly)
		if err != nil {
			return err
		}
		if recovers {
			return &gate.Finding{Kind: gate.Waits, Text: "still replays its log"}
		}
		if readOnly { // the base backup was taken while castle had ended the writes
			return &gate.Finding{Text: "permits no writes; its restore lacks the options in " +
				"survives.NAME.options; permit them: " + permitWrites}
		}
		if err := d.samePasswords(ctx, c); err != nil || s.Position == nil {
			return err
		}
		if err := reached(ctx, c, s); err != nil || !s.Frozen {
			return err
		}
		return compareTables(ctx, c, s)
	})
}

// reached returns nil if the log was replayed up to a save, and its marker is there.
func reached(ctx context.Context, c *pgx.Conn, s survivor.Save) error {
	var is, marked bool
	if err := c.QueryRow(ctx, `SELECT now_at >= $1::text::pg_lsn AND
		substr(pg_walfile_name(now_at), 1, 8) > $2, to_regclass('castle.saves') IS NOT NULL
		FROM pg_current_wal_insert_lsn() AS now_at`,
		s.Position[lsn], s.Position[timeline]).Scan(&is, &marked); err != nil {
		return err
	}
	if marked {
		const query = "SELECT EXISTS (SELECT FROM castle.saves WHERE id = $1)"
		if err := c.QueryRow(ctx, query, s.ID).Scan(&marked); err != nil {
			return err
		}
	}
	if is && marked {
		return nil
	}
	return &gate.Finding{Text: fmt.Sprintf("was not restored up to %s (%s on timeline %s): its log ends "+
		"before that, or the restore has another target", s, s.Position[lsn], s.Position[timeline])}
}

func compareTables(ctx context.Context, c *pgx.Conn, s survivor.Save) error {
	var differ []string
	names := xslices.Map(s.Tables, func(t survivor.Table) string { return t.Name })
	now, err := countTables(ctx, c, names)
	if err != nil {
		return err
	}
	for i, t := range now {
		if was := s.Tables[i]; t != was {
			differ = append(differ, foreign.OneLine(fmt.Sprintf("%s had %d rows with the sum %s, and has %d "+
				"with %s", t.Name, was.Rows, was.Sum, t.Rows, t.Sum)))
		}
	}
	if len(differ) == 0 {
		return nil
	}
	return &gate.Finding{Text: fmt.Sprintf("differs from %s: %s; if an application has "+
		"written since the restore, have it start after the database in Flux (dependsOn)", s,
		strings.Join(differ, "; "))}
}

// samePasswords returns nil if PGO's users have the passwords of their Secrets. Restored users have those of
// the backup: PGO writes others once its own record of them changes, and never looks at the database.
func (d *database) samePasswords(ctx context.Context, c *pgx.Conn) error {
	const query = `SELECT rolname, rolpassword FROM pg_authid
		WHERE rolpassword <> '' AND rolname ~ '^[a-z0-9]([-a-z0-9]*[a-z0-9])?$'`
	rows, _ := c.Query(ctx, query) //nolint:errcheck // CollectRows returns it
	roles, err := pgx.CollectRows(rows, pgx.RowToStructByPos[struct{ Name, Verifier string }])
	if err != nil {
		return err
	}
	for _, role := range roles {
		secret := d.secretOf(role.Name)
		switch verifier, err := d.secret(ctx, secret, "verifier"); {
		case gate.KindOf(err) == gate.NotFound: // the role is none of PGO's
		case err != nil:
			return err
		case string(verifier) != role.Verifier:
			return &gate.Finding{Text: fmt.Sprintf("has another password for %s than the Secret %s/%s: "+
				"delete the Secret's field verifier, and PGO writes the password again", role.Name,
				d.namespace, secret)}
		}
	}
	return nil
}

// archiver returns why PostgreSQL does not archive; nil if its last attempt succeeded.
func (d *database) archiver(ctx context.Context) error {
	return d.within(ctx, func(c *pgx.Conn) error {
		var archived, failed *string
		err := c.QueryRow(ctx, `SELECT last_archived_wal, CASE WHEN last_archived_time IS NULL
			OR last_failed_time > last_archived_time THEN last_failed_wal END FROM pg_stat_archiver`).
			Scan(&archived, &failed)
		if err != nil || failed == nil {
			return err
		}
		last := "nothing"
		if archived != nil {
			last = foreign.OneLine(*archived)
		}
		return fmt.Errorf("its archive_command fails for %s (last archived: %s): the log of PostgreSQL or "+
			"of pgBackRest says why", foreign.OneLine(*failed), last)
	})
}
