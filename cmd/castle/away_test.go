//go:build integration

package main

import (
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/ephemeral-castle/castle/internal/store/storetest"
)

// away are the ways in which a store does not do what it is asked.
var away = []struct {
	name   string
	server func(testing.TB) *storetest.Server
	broken func(*storetest.Proxy)
	says   string // a pattern of what the user reads about it
	lasts  bool   // it does not pass by itself, so castle does not wait
}{
	{"s3-refused", storetest.S3, (*storetest.Proxy).Refuse, "connection refused", false},
	{"s3-stalled", storetest.S3, (*storetest.Proxy).Stall, "no answer", false},
	{"s3-slow", storetest.S3, func(p *storetest.Proxy) { p.Delay(30 * time.Second) }, "no answer", false},
	{"s3-busy", storetest.S3, func(p *storetest.Proxy) { p.Answer(503, "SlowDown") }, "SlowDown", false},
	{"s3-expired", storetest.S3, func(p *storetest.Proxy) { p.Answer(400, "ExpiredToken") }, "ExpiredToken",
		true},
	{"s3-full", storetest.S3, func(p *storetest.Proxy) { p.Answer(507, "InsufficientStorage") },
		"InsufficientStorage", true},
	{"postgres-refused", storetest.Postgres, (*storetest.Proxy).Refuse, "connection refused", false},
	{"postgres-stalled", storetest.Postgres, (*storetest.Proxy).Stall, "(no answer|timeout)", false},
}

// TestStoreAway runs what a user meets when the store is away at the start, in the middle of an apply and at
// the end, with a fake Terraform and real stores behind a proxy.
func TestStoreAway(t *testing.T) {
	t.Parallel()
	for _, fault := range away {
		t.Run(fault.name, func(t *testing.T) {
			t.Parallel() // most of it is waiting
			server := fault.server(t)
			proxy := storetest.NewProxy(t, server)
			run(t, "testdata/away", func(env *testscript.Env) error {
				env.Values[begunKey{}] = map[string]*begun{}
				env.Setenv("CASTLE_STATE_STORE", proxy.URL)
				env.Setenv("CASTLE_STATE_LOCK_TIME", "4s")
				env.Vars = append(env.Vars, server.Env...)
				env.Setenv("SAYS", fault.says)
				env.Setenv("WAITS", `note: castle waits for (s3|postgres)://.*, for at most 4s; after `+
					`that, the last changes stay in .*/state/blue/proxmox, `)
				if fault.lasts {
					env.Setenv("WAITS", "the last changes are not committed: ") // at once
				}
				return fakeOnPath(env)
			}, interruptible(), map[string]func(*testscript.TestScript, bool, []string){
				// store broken|whole
				"store": func(ts *testscript.TestScript, neg bool, args []string) {
					if neg || len(args) != 1 {
						ts.Fatalf("usage: store broken|whole")
					}
					if args[0] == "broken" {
						fault.broken(proxy)
					} else {
						proxy.Pass(t)
					}
				},
			})
		})
	}
}
