package castle

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/proxmox"
	"github.com/ephemeral-castle/castle/internal/state"
)

// account accounts for what Terraform says it deleted. The question that a create
// asks before it adopts an object is asked once more: an object that is still
// there is left over. Where there is no question, or no answer, the receipt says
// that it rests on Terraform's word. What is in Proxmox is proved by itself.
func (r *destruction) account(ctx context.Context, d *Doomed, addresses []string) error {
	var things []event.OwnedObject
	asked := map[string]bool{}
	for i := range d.Record.Adopts {
		a := &d.Record.Adopts[i]
		if !a.Left && !slices.Contains(addresses, a.Address) {
			continue
		}
		thing, err := r.find(ctx, a)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			r.notice(fmt.Sprintf("%s: nobody can tell whether %s is gone: %v", d.Record.Name, a.Address, err))
			continue
		}
		asked[a.Address], a.Left = true, !thing.Gone
		things = append(things, thing)
	}
	r.trust(d, addresses, asked)
	if err := r.keep(d.Record.Name, things); err != nil {
		// The state does not know it any more; the next destroy has to ask again.
		return errors.Join(err, r.dir.Stage(d.Record.Name).SetRecord(d.Record))
	}
	return nil
}

// find asks whether an object is there.
func (r *destruction) find(ctx context.Context, a *state.RecordedAdopt) (event.OwnedObject, error) {
	types := ExistsTypes()
	i := slices.IndexFunc(types, func(t gate.ExistsType) bool { return t.Name == a.Exists.Type })
	if i < 0 {
		return event.OwnedObject{}, fmt.Errorf("this castle does not know the question %s", a.Exists.Type)
	}
	values, err := a.Exists.Decode()
	if err != nil {
		return event.OwnedObject{}, err
	}
	target := gate.Target{Environ: r.options.Environ}
	if target.Kubeconfig, err = os.ReadFile(r.dir.Kubeconfig()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return event.OwnedObject{}, err
	}
	question, err := types[i].New(a.Exists.Type, target, values)
	if err != nil {
		return event.OwnedObject{}, err
	}
	there, err := question.Lookup(ctx, nil)
	thing := event.OwnedObject{Kind: question.Object.Kind, ID: question.Object.ID, Gone: !there}
	if there {
		thing.Reason, thing.Fix = "still there", question.Object.Fix
	}
	return thing, err
}

// trust notes what Terraform says it deleted and castle has nobody to ask for.
func (r *destruction) trust(d *Doomed, addresses []string, asked map[string]bool) {
	r.noting.Lock()
	defer r.noting.Unlock()
	for _, res := range d.state.Resources {
		if slices.Contains(addresses, res.Address) && !asked[res.Address] && !proxmox.Owns(res.Type) && !inStateOnly(res.Provider) && !inMachines(res.Provider) {
			r.unasked = append(r.unasked, d.Record.Name+": "+res.Address)
		}
	}
}

// inMachines reports whether what a provider makes lives in the machines alone
// and ends with them.
func inMachines(provider string) bool { return provider == "registry.terraform.io/siderolabs/talos" }

// inStateOnly reports whether what a provider makes exists nowhere but in the state.
func inStateOnly(provider string) bool {
	switch provider {
	case "terraform.io/builtin/terraform", "registry.terraform.io/hashicorp/random", "registry.terraform.io/hashicorp/tls":
		return true
	}
	return false
}
