package destroy

import (
	"testing"

	"github.com/ephemeral-castle/castle/internal/state"
)

func TestOnlySecretsThatNeedNoClusterOutliveIt(t *testing.T) {
	recorded := func(name, layer string, needs ...string) *Stage {
		return &Stage{Record: state.Record{Name: name, Layer: layer, Needs: needs}}
	}
	inside := recorded("vault", "secrets")
	inside.Record.InCluster = []string{"registry.terraform.io/hashicorp/helm"}
	all := []*Stage{
		recorded("keys", "secrets"),
		recorded("passwords", "secrets", "keys", "one that was never recorded"),
		recorded("database", "secrets", "users"),
		recorded("users", "secrets", "vault"),
		recorded("jwt", "secrets", "machines"),
		recorded("circle", "secrets", "circle"),
		inside,
		recorded("machines", "platform", "keys"),
	}
	want := map[string]bool{"keys": true, "passwords": true, "circle": true}
	stays := survivingSecrets(all)
	for _, d := range all {
		if name := d.Record.Name; stays[name] != want[name] {
			t.Errorf("%s stays: %v", name, stays[name])
		}
	}
}
