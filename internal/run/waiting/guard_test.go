package waiting

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/secret"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/terraform"
)

// TestGuardEndsTheDeletionOfAForeignObject: another machine has got the id since castle's last look.
func TestGuardEndsTheDeletionOfAForeignObject(t *testing.T) {
	dir, err := state.Open(t.TempDir(), "blue", "proxmox")
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster.Cluster{Config: &config.Cluster{Name: "blue", Platform: "proxmox"}, Dir: dir,
		Masker: &secret.Masker{}}
	root := &terraform.Root{Dir: t.TempDir(), Run: "of-no-process", Log: io.Discard}
	w := &run.Workspace{Run: &run.Run{Cluster: c, ID: root.Run}, Root: root, Dir: dir.Stage("machines"),
		Stage: "machines"}
	const own, other = `proxmox_virtual_environment_vm.node["cp-01"]`, `proxmox_virtual_environment_vm.other`
	guard := &Guard{Deletes: []gate.Known{{Address: own}}, Preflights: []gate.Preflight{{
		Name: "vm_ids.free",
		Look: func(_ context.Context, k gate.Known) (gate.Reading, error) {
			return gate.Reading{Foreign: &gate.Foreign{What: `VM 421 "prod-database"`}}, nil
		},
	}}}
	err = guard.Watch(t.Context(), w, func(ctx context.Context) error {
		guard.Follow(terraform.Change{Address: other, Action: "delete", Phase: terraform.Started})
		guard.Follow(terraform.Change{Address: own, Action: "delete", Phase: terraform.Started})
		<-ctx.Done() // Terraform is stopped in the middle of it
		return context.Cause(ctx)
	})
	if refused := (*run.PreflightError)(nil); !errors.As(err, &refused) || len(refused.Foreign) != 1 ||
		!strings.Contains(err.Error(), "Terraform was about to delete it as "+own+" and was killed") {
		t.Errorf("got %v", err)
	}
}
