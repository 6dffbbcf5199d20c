package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// phoenixScript writes row A into a full backup and row B into the log alone, destroys and creates the
// cluster again, and reads the rows. It reports when the recreate began and ended.
const phoenixScript = `set -e
sql() {
	encoded=$(kubectl get secret -n tazlab-db tazlab-db-pguser-postgres -o jsonpath={.data.password})
	PGPASSWORD=$(echo "$encoded" | base64 -d) PGSSLMODE=require \
	"$PSQL" -h 192.168.1.184 -U postgres -d tazlab -At -v ON_ERROR_STOP=on -c "$1"
}
castle create tazlab
sql "CREATE TABLE notes (text text); INSERT INTO notes VALUES ('A')"
castle backup tazlab
sql "INSERT INTO notes VALUES ('B')"
echo "replay: begun $(date +%s.%N)"
castle recreate tazlab --yes
echo "replay: ended $(date +%s.%N)"
echo "replay: rows $(sql "SELECT string_agg(text, '' ORDER BY text) FROM notes")"
`

// phoenix is a recreate of tazlab, whose rows have to be there again.
type phoenix struct {
	seconds float64 // from the command to its end: data saved, cluster destroyed, created, data restored
	create  report  // of the create in it
}

// phoenixParts are the parts of two rounds that TazLab published ("Phoenix Protocol", 2026-02-10 and
// 2026-02-25), from wiped machines to the row: seconds by part, 0 for what a round does not name.
var phoenixParts = []struct {
	name          string
	first, second float64
	layers        []string
}{
	{"secrets", 33, 10, []string{"secrets"}},
	{"platform", 3*60 + 48, 60 + 53, []string{"platform"}},
	{"engine and networking", 2*60 + 51, 0, []string{"engine", "networking"}},
	{"networking, gitops and storage", 0, 60 + 56, []string{"networking", "gitops", "storage"}},
	{"gitops and storage", 2*60 + 25, 0, []string{"gitops", "storage"}},
	{"the database; Flux's fast track", 2 * 60, 60 + 31, nil},
}

// The published rounds as a whole.
const phoenixFirst, phoenixSecond = 11*60 + 38, 8*60 + 43

// measurePhoenix runs phoenixScript in the lab. It fails if a row is not there again.
func (o options) measurePhoenix(ctx context.Context) (p phoenix, err error) {
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/psql")
	if err != nil || len(found) == 0 {
		return p, errors.New("PostgreSQL is not installed: make s3")
	}
	var output string
	p.create, output, err = o.reported(ctx, "tazlab", "env", "PSQL="+found[len(found)-1], "sh", "-c",
		phoenixScript)
	if err != nil {
		return p, err
	}
	begun, err := moment(output, "begun")
	ended, err2 := moment(output, "ended")
	p.seconds = ended - begun
	if !strings.Contains(output, "\nreplay: rows AB\n") {
		err = errors.Join(err, errors.New("the rows A and B are not there again"))
	}
	return p, errors.Join(err, err2)
}

// moment reads a time that phoenixScript reported, in seconds.
func moment(output, name string) (float64, error) {
	_, text, _ := strings.Cut(output, "\nreplay: "+name+" ")
	text, _, _ = strings.Cut(text, "\n")
	return strconv.ParseFloat(text, 64)
}

func (p phoenix) markdown() string {
	var b strings.Builder
	whole := p.create.Run.Seconds
	fmt.Fprintf(&b, "\n## tazlab, destroyed and recreated with its data\n\nRow A is in a full backup, row B "+
		"in the log alone: both are there again. castle's `recreate` took %s: %s until the data\nwere saved "+
		"and proved and the cluster was destroyed, and %s from the first stage to the proved data. The "+
		"published\nrounds begin with wiped machines.\n\n| | published, 2026-02-10 | 2026-02-25 | castle |\n"+
		"| --- | ---: | ---: | ---: |\n", took(p.seconds), took(p.seconds-whole), took(whole))
	for _, part := range phoenixParts {
		ours := measured{castle: p.create}.byCastle(func(_, layer string, _ bool) bool {
			return slices.Contains(part.layers, layer)
		})
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", part.name, orDash(part.first), orDash(part.second),
			orDash(ours))
	}
	fmt.Fprintf(&b, "| whole | %s | %s | %s |\n", took(phoenixFirst), took(phoenixSecond), took(whole))
	return b.String()
}
