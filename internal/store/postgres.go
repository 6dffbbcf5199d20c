package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
)

// The statements of a store in PostgreSQL. Two castles may create the table at once, which PostgreSQL answers
// with an error in spite of IF NOT EXISTS; so they take a lock, which ends with these statements.
const (
	createTable = `SELECT pg_advisory_xact_lock(7165065841); CREATE TABLE IF NOT EXISTS castle_state (
		key text COLLATE "C" PRIMARY KEY, value bytea NOT NULL, created timestamptz NOT NULL DEFAULT now())`
	selectValue = `SELECT value FROM castle_state WHERE key = $1`
	selectKeys  = `SELECT key, length(value)::text FROM castle_state WHERE key >= $1 AND key < $2`
	insertValue = `INSERT INTO castle_state (key, value) VALUES ($1, $2) ON CONFLICT DO NOTHING`
	deleteKey   = `DELETE FROM castle_state WHERE key = $1`
)

// Codes of PostgreSQL's errors.
const (
	undefinedTable    = "42P01"
	noPrivilege       = "42501"
	noDatabase        = "3D000"
	noSchema          = "3F000"
	diskFull          = "53100"
	serverBusy        = "53" // the class
	connectionFailed  = "08"
	operatorIntervene = "57P"
	authorization     = "28"
	rolledBack        = "40"
)

// postgres is a store in a table of a database.
type postgres struct{ pool *pgxpool.Pool }

func openPostgres(ctx context.Context, u *url.URL) (backend, error) {
	if strings.Trim(u.Path, "/") == "" && u.Query().Get("dbname") == "" && os.Getenv("PGDATABASE") == "" {
		return nil, errors.New("it names no database, as postgres://USER@HOST/DATABASE does")
	}
	config, err := pgxpool.ParseConfig(u.String())
	if err != nil {
		return nil, err
	}
	config.MaxConns = 8
	if config.ConnConfig.ConnectTimeout == 0 {
		config.ConnConfig.ConnectTimeout = 5 * time.Second
	}
	if config.ConnConfig.RuntimeParams["application_name"] == "" {
		config.ConnConfig.RuntimeParams["application_name"] = "castle"
	}
	// A broken connection fails the attempt, and the next one takes another. Only what may be gone without a
	// sign is tried first: a firewall drops connections that are idle.
	config.ShouldPing = func(_ context.Context, p pgxpool.ShouldPingParams) bool {
		return p.IdleDuration > time.Minute
	}
	config.PingTimeout = 2 * time.Second
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(ctx), config) // connects when it is used
	return &postgres{pool}, err
}

func (p *postgres) close() error {
	p.pool.Close()
	return nil
}

// run runs one statement in one round trip, with binary values.
func (p *postgres) run(ctx context.Context, statement string, values ...[]byte) (*pgconn.Result, error) {
	c, err := p.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer c.Release()
	formats := []int16{pgtype.TextFormatCode, pgtype.BinaryFormatCode}[:len(values)]
	if statement == selectKeys {
		formats = []int16{pgtype.TextFormatCode}
	}
	result := c.Conn().PgConn().ExecParams(ctx, statement, values, nil, formats,
		[]int16{pgtype.BinaryFormatCode}).Read()
	return result, result.Err
}

func (p *postgres) read(ctx context.Context, key string) ([]byte, error) {
	result, err := p.run(ctx, selectValue, []byte(key))
	switch {
	case hasCode(err, undefinedTable) || err == nil && len(result.Rows) == 0:
		return nil, fs.ErrNotExist
	case err != nil:
		return nil, err
	}
	return result.Rows[0][0], nil
}

func (p *postgres) create(ctx context.Context, key string, value []byte) error {
	if value == nil {
		value = []byte{} // nil is NULL
	}
	result, err := p.run(ctx, insertValue, []byte(key), value)
	if hasCode(err, undefinedTable) {
		if err := p.createTable(ctx); err != nil {
			return err
		}
		result, err = p.run(ctx, insertValue, []byte(key), value)
	}
	switch {
	case err != nil:
		return err
	case result.CommandTag.RowsAffected() == 0:
		return fs.ErrExist
	}
	return nil
}

func (p *postgres) createTable(ctx context.Context) error {
	c, err := p.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer c.Release()
	return c.Conn().PgConn().Exec(ctx, createTable).Close()
}

func (p *postgres) list(ctx context.Context, prefix string) (map[string]int64, error) {
	// Keys are ASCII, so that the last character of ASCII stands after all of them.
	result, err := p.run(ctx, selectKeys, []byte(prefix), []byte(prefix+"\x7f"))
	switch {
	case hasCode(err, undefinedTable):
		return nil, nil
	case err != nil:
		return nil, err
	}
	sizes := map[string]int64{}
	for _, row := range result.Rows {
		if sizes[string(row[0])], err = strconv.ParseInt(string(row[1]), 10, 64); err != nil {
			return nil, err
		}
	}
	return sizes, nil
}

func (p *postgres) remove(ctx context.Context, key string) error {
	_, err := p.run(ctx, deleteKey, []byte(key))
	if hasCode(err, undefinedTable) {
		return nil
	}
	return err
}

func hasCode(err error, code string) bool {
	var reported *pgconn.PgError
	return errors.As(err, &reported) && reported.Code == code
}

func (p *postgres) classify(err error) class {
	var reported *pgconn.PgError
	if !errors.As(err, &reported) {
		return connection(err)
	}
	c := class{kind: Failed, text: fmt.Sprintf("%s (SQLSTATE %s)", reported.Message, reported.Code)}
	in := func(codes ...string) bool {
		return slices.ContainsFunc(codes, func(c string) bool { return strings.HasPrefix(reported.Code, c) })
	}
	switch {
	case in(diskFull):
		c.kind = Full
	case in(authorization, noPrivilege):
		c.kind = Refused
	case in(noDatabase, noSchema):
		c.kind = Missing
	case in(connectionFailed, operatorIntervene, serverBusy, rolledBack):
		c.kind, c.passes = Away, true
	}
	return c
}
