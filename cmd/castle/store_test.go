package main

import (
	"fmt"
	"os"

	"filippo.io/age"
	"github.com/rogpeppe/go-internal/testscript"

	statekeys "github.com/ephemeral-castle/castle/internal/state/keys"
)

// encryption is the block of castle.hcl by which one holder reads and writes.
func encryption(identity *age.X25519Identity) string {
	holders, err := statekeys.Parse(identity.String())
	if err != nil {
		panic(err)
	}
	return fmt.Sprintf("  encryption {\n    recipients = [%q]\n    signers    = [%q]\n  }\n",
		holders[0].Recipient, holders[0].Signer)
}

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
		text := fmt.Appendf(nil, "state {\n%s}\n", encryption(identity))
		ts.Check(os.WriteFile(ts.MkAbs("castle.hcl"), text, 0o600))
	}
}
