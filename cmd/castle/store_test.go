package main

import (
	"fmt"
	"os"

	"filippo.io/age"
	"github.com/rogpeppe/go-internal/testscript"
)

// identities makes two identities for age, in the variables RIGHT and WRONG, and has castle.hcl encrypt the
// states for the first one.
func identities(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 0 {
		ts.Fatalf("usage: identities")
	}
	for _, name := range []string{"WRONG", "RIGHT"} {
		identity, err := age.GenerateX25519Identity()
		ts.Check(err)
		ts.Setenv(name, identity.String())
		ts.Check(os.WriteFile(ts.MkAbs("castle.hcl"), fmt.Appendf(nil,
			"state {\n  encryption { recipients = [%q] }\n}\n", identity.Recipient()), 0o600))
	}
}
