//go:build integration

package main

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestPhoenixKills kills castle again and again while it saves the database of tazlab, destroys the cluster
// and restores the database in the next one. The same command completes each, and no row is lost.
//
//	CASTLE_PHOENIX_KILLS   how many kills there are; the default is 2
//	CASTLE_PHOENIX_SEED    replays the schedule
func TestPhoenixKills(t *testing.T) {
	rehearseKills(t, "tazlab", "PHOENIX", "2", func(k *soak) {
		(&phoenixKills{restoreKills{soak: k, used: map[string]time.Duration{"backup": 3 * time.Second,
			"recreate": time.Minute}}}).run()
	})
}

// phoenixKills is such a test, inside its rehearsal.
type phoenixKills struct{ kills restoreKills }

func (k *phoenixKills) run() {
	soak := k.kills.soak
	defer func() { soak.t.Log(soak.hits.report()) }() // also of a test that has failed
	soak.complete(soak.start("create", "--yes"))
	k.sql("CREATE TABLE notes (id int PRIMARY KEY)")
	want := ""
	for round := 1; soak.kills > 0; round++ {
		soak.t.Logf("CASTLE_PHOENIX_SEED=%d: round %d, %d kills to go", soak.seed, round, soak.kills)
		k.sql(fmt.Sprintf("INSERT INTO notes VALUES (%d)", 2*round))
		k.kills.disturb("backup", 1)
		k.sql(fmt.Sprintf("INSERT INTO notes VALUES (%d)", 2*round+1)) // it stands in the log alone
		k.kills.disturb("recreate", 4, "--yes")
		want += fmt.Sprintf("%d\n%d\n", 2*round, 2*round+1)
		if got := k.sql("SELECT id FROM notes ORDER BY id"); got != want {
			soak.t.Fatalf("round %d: rows are lost: %q, want %q", round, got, want)
		}
		k.sql("CREATE TABLE writes (); DROP TABLE writes")
		soak.complete(soak.start("create", "--yes"))
	}
	soak.complete(soak.start("destroy", "--yes", "--all"))
}

// sql runs statements as the superuser of the database that there is now.
func (k *phoenixKills) sql(statements string) string {
	soak := k.kills.soak
	soak.t.Helper()
	secret, err := soak.lab.cluster("GET", superuserSecret, nil)
	must(soak.t, err)
	out, err := psql(secret, statements)
	if err != nil {
		soak.t.Fatalf("%s: %v\n%s", strings.TrimSpace(statements), err, out)
	}
	return string(out)
}
