//go:build integration

package main

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestPhoenix destroys and recreates the cluster tazlab, whose database and volume have to be there again: a
// real PostgreSQL that the real pgBackRest archives into a real S3 server, and the double of Longhorn.
func TestPhoenix(t *testing.T) {
	scripts(t, "tazlab", "testdata/phoenix")
}

// TestPhoenixIncomplete lets backups lack what they list, and restored passwords be those of the backup.
func TestPhoenixIncomplete(t *testing.T) {
	scripts(t, "tazlab", "testdata/phoenix-incomplete", "--fault", "backup-incomplete=1",
		"--fault", "password-diverged=1", "--fault", "restore-slow=20s")
}

// TestPhoenixAway lets the object store refuse everybody, and the archive lag behind the database.
func TestPhoenixAway(t *testing.T) {
	scripts(t, "tazlab", "testdata/phoenix-away", "--fault", "s3-refuses=20s", "--fault", "wal-behind=20s")
}

// superuserSecret is where PGO keeps the password of the superuser.
const superuserSecret = "/api/v1/namespaces/tazlab-db/secrets/tazlab-db-pguser-postgres"

// sql runs statements in the database of tazlab as its superuser: sql STATEMENTS. With !, PostgreSQL refuses.
func sql(ts *testscript.TestScript, neg bool, args []string) {
	out, err := psql(ask(ts, http.MethodGet, superuserSecret, nil), strings.Join(args, " "))
	_, written := ts.Stdout().Write(out)
	ts.Check(written)
	if (err != nil) != neg {
		ts.Fatalf("sql %s: %v\n%s", args, err, out)
	}
}

// psql runs statements with the password in a Secret, as the API server has it.
func psql(object []byte, statements string) ([]byte, error) {
	var secret struct{ Data map[string]string }
	if err := json.Unmarshal(object, &secret); err != nil {
		return nil, err
	}
	password, err := base64.StdEncoding.DecodeString(secret.Data["password"])
	if err != nil {
		return nil, err
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/psql")
	if err != nil {
		return nil, err
	}
	c := exec.Command(found[len(found)-1], "-h", "192.168.1.184", "-U", "postgres", "-d", "tazlab", "-At",
		"-v", "ON_ERROR_STOP=on", "-c", statements)
	c.Env = append(os.Environ(), "PGPASSWORD="+string(password), "PGSSLMODE=require")
	return c.CombinedOutput()
}

// volume appends a text to the volume of tazlab's library, as its Pod would, and prints what is in it: volume
// TEXT. An empty text only reads.
func volume(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: volume TEXT")
	}
	type annotations map[string]*string
	type volumeClaim struct {
		Metadata struct {
			Annotations annotations `json:"annotations"`
		} `json:"metadata"`
	}
	const path = "/api/v1/namespaces/media/persistentvolumeclaims/data-library-0"
	const write, content = "lab.castle/write", "lab.castle/content"
	var c volumeClaim
	c.Metadata.Annotations = annotations{write: &args[0], content: nil}
	body, err := json.Marshal(c)
	ts.Check(err)
	ask(ts, http.MethodPatch, path, body)
	if !eventually(time.Minute, 100*time.Millisecond, func() bool {
		c = volumeClaim{}
		ts.Check(json.Unmarshal(ask(ts, http.MethodGet, path, nil), &c))
		return c.Metadata.Annotations[write] == nil && c.Metadata.Annotations[content] != nil
	}) {
		ts.Fatalf("nobody has written to the volume: is it attached?")
	}
	_, err = ts.Stdout().Write([]byte(*c.Metadata.Annotations[content] + "\n"))
	ts.Check(err)
}

// bucket takes the bucket of the lab's S3 server away, or gives it back: bucket away, bucket back.
func bucket(ts *testscript.TestScript, neg bool, args []string) {
	dir := filepath.Dir(ts.Getenv("CASTLE_STATE_DIR"))
	found, err := filepath.Glob(filepath.Join(dir, "s3", "objects", "tazlab*"))
	ts.Check(err)
	if neg || len(args) != 1 || len(found) != 1 {
		ts.Fatalf("usage: bucket away|back; there are %v below %s", found, dir)
	}
	to := strings.TrimSuffix(found[0], ".away")
	if args[0] == "away" {
		to += ".away"
	}
	ts.Check(os.Rename(found[0], to))
}
