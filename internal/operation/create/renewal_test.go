package create

import (
	"errors"
	"slices"
	"testing"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/terraform"
)

func TestARenewalReplacesNothingButTheIssuers(t *testing.T) {
	issuers := map[string][]string{"keys": {"tls_locally_signed_cert.admin"}}
	for _, test := range []struct {
		change  terraform.Change
		refused bool
	}{
		{terraform.Change{Action: "replace", Address: "tls_locally_signed_cert.admin"}, false},
		{terraform.Change{Action: "create", Address: "tls_locally_signed_cert.admin"}, false},
		{terraform.Change{Action: "update", Address: "infisical_secret.kubeconfig"}, false},
		{terraform.Change{Action: "read", Address: "data.talos_client_configuration.cluster"}, false},
		{terraform.Change{Action: "replace", Address: "talos_machine_secrets.cluster"}, true},
		{terraform.Change{Action: "create", Address: "random_password.new"}, true},
		{terraform.Change{Action: "delete", Address: "tls_locally_signed_cert.admin"}, true},
	} {
		a := &attempt{creation: &creation{issuers: issuers}, stage: &config.Stage{Name: "keys"},
			run:  &run.Run{Cluster: &cluster.Cluster{Options: cluster.Options{Cluster: "blue"}}},
			plan: &terraform.Plan{Changes: []terraform.Change{test.change}}}
		err := a.checkRenewal(t.Context(), &state.State{}, &state.Intent{})
		refusal, refused := errors.AsType[*run.RefusedError](err)
		if refused != test.refused || err != nil && !refused {
			t.Errorf("%s %s: %v", test.change.Action, test.change.Address, err)
		}
		if want := []string{"keys: " + test.change.Action + " " + test.change.Address}; refused &&
			!slices.Equal(refusal.Reasons, want) {
			t.Errorf("got %q, want %q", refusal.Reasons, want)
		}
	}
}
