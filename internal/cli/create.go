package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/operation/create"
)

func newCreate(a *app) *cobra.Command {
	o := create.Options{}
	cmd := a.valueFlags(&cobra.Command{
		Use:   "create CLUSTER",
		Short: "Create a cluster or resume a run",
		Long: `Create a cluster, or resume a run that failed or was killed. Stages that are up to
date are not applied. castle retries a transient error, such as a Proxmox lock or an
API server that restarts, up to five times. A failed stage skips only its dependents.

Before any change, castle checks every VM id. It never touches a VM that it does
not own: exit code 4, with the VM and the remedies. --adopt imports VMs whose uuid
proves that castle made them for this cluster, for example after the state of one stage
was lost: a plan had the uuid before the VM existed, or it derives from the cluster's
ServiceAccount key. Name, tags and node prove nothing.

Before castle replaces or destroys a resource, it shows the change and asks; without a
terminal it requires --yes, or leaves the stage unchanged with exit code 3; so too
before a VM gets an empty disk in the place of a detached one. Resources that an
interrupted run created in part are completed without asking.

castle takes no node out of a cluster that runs, turns no control plane into a worker,
and changes nothing that interrupts, restarts, replaces or empties machines that run:
exit code 4, with what would happen to which machine. ` + "`castle rollout`" + ` makes such changes,
one machine after the other.

--plan applies exactly the plan that ` + "`castle plan --plan-out`" + ` saved, without asking. If
anything has changed since (configuration, values, secrets, code, states, Terraform,
castle itself), castle applies nothing: exit code 3. A stage that could not be
planned before others were applied is planned in its turn. castle applies it if it
only creates resources; otherwise it requires a new plan, or --yes. The same command
resumes an interrupted run, and applies no more than was reviewed. --plan-digest proves
that the file is the one whose plan was printed: without it, whoever can replace the
file can have castle apply another plan of the same configuration. With --refuse-losses,
castle applies nothing if the plan replaces or destroys a resource: exit code 3. A
pipeline can thus apply a plan that nobody has reviewed.`,
		Example: `  castle create blue
  castle create blue --only networking
  castle create blue --plan blue.castleplan`,
		SuggestFor: []string{"apply", "up"},
		Args: a.cluster(cobra.MatchAll(cobra.ExactArgs(1), func(cmd *cobra.Command, _ []string) error {
			for _, flag := range []string{"only", "from", "to", "refresh", "adopt"} {
				if o.Plan != "" && cmd.Flags().Changed(flag) {
					return fmt.Errorf("--%s cannot be combined with --plan %s", flag, o.Plan)
				}
			}
			if o.RefuseLosses && o.Plan == "" {
				return errors.New("--refuse-losses requires --plan; without a plan and without --yes, " +
					"castle asks")
			}
			if cmd.Flags().Changed("plan-digest") && (o.Plan == "" || o.PlanDigest == "") {
				return errors.New("--plan-digest requires --plan and the sha256 that castle plan printed")
			}
			return nil
		})),
		RunE: a.onCluster(a.runReporter, func(ctx context.Context, c *cluster.Cluster, _ []string) error {
			if !a.yes {
				o.Confirm = confirmLoss(a)
			}
			return reporting(a, c, func() error { return create.Run(ctx, c, o) })
		}),
	})
	selectionFlags(cmd, &o.Selection)
	cmd.Flags().BoolVar(&o.Refresh, "refresh", false, "apply stages that are up to date, too")
	cmd.Flags().BoolVar(&o.Adopt, "adopt", false, "import VMs whose uuid proves them this cluster's")
	cmd.Flags().BoolVar(&a.yes, "yes", false, "replace and destroy resources without asking")
	backupFlag(cmd, &o.Backup)
	cmd.Flags().StringVar(&o.Plan, "plan", "", "apply exactly the saved plan in `FILE`")
	cmd.Flags().StringVar(&o.PlanDigest, "plan-digest", "",
		"with --plan: the `SHA256` of the file, as castle plan --plan-out printed it")
	cmd.Flags().BoolVar(&o.RefuseLosses, "refuse-losses", false,
		"with --plan: apply nothing if the plan replaces or destroys a resource")
	return a.runFlags(cmd)
}

// backupFlag adds --backup of a birth.
func backupFlag(cmd *cobra.Command, id *string) {
	cmd.Flags().StringVar(id, "backup", "",
		"begin the data that have the save `ID` with it, not with their newest")
}

func selectionFlags(cmd *cobra.Command, s *cluster.Selection) {
	cmd.Flags().StringSliceVar(&s.Only, "only", nil, "only these `STAGES or layers`")
	cmd.Flags().StringVar(&s.From, "from", "", "from this `STAGE or layer` on")
	cmd.Flags().StringVar(&s.To, "to", "", "up to this `STAGE or layer`")
}
