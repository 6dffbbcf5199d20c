package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/siderolabs/gen/xslices"
	"github.com/spf13/cobra"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/folders"
	"github.com/ephemeral-castle/castle/internal/operation/nuke"
	"github.com/ephemeral-castle/castle/internal/platform"
	"github.com/ephemeral-castle/castle/internal/platform/hcloud"
	"github.com/ephemeral-castle/castle/internal/platform/proxmox"
	"github.com/ephemeral-castle/castle/internal/process"
)

func newNuke(a *app) *cobra.Command {
	o := nuke.Options{Platform: proxmox.Platform{}}
	var ids string
	var foreign []string
	var dry bool
	cmd := &cobra.Command{
		Use:   "nuke --vmid-range FROM-TO | --cluster CLUSTER",
		Short: "Delete castle's machines without any state",
		Long: `Delete castle's own machines, when the state is lost or wrong. It requires no state.

With --vmid-range, it deletes castle's own VMs in a range of ids. Proxmox comes from
--endpoint or PROXMOX_VE_ENDPOINT, the API token from PROXMOX_VE_API_TOKEN (there is no
flag: other users could see it), or both from the record of --cluster: its endpoint is
preferred to the environment's, its token is used if the environment has none.

castle owns a VM in the range if it has the tag "castle" and one more sign: the name of a
cluster that is also its tag (blue-cp-01), or the pool "castle". These signs prove
nothing: the same cluster of another state directory has them, too. Check the uuid and
the uptime in the list. A VM is foreign, too, if a cluster's state records another one
for its id, or if its uuid does not derive from the recorded key of its cluster.
--foreign=ID deletes a foreign VM, too; repeatable. Nothing deletes a VM that is
recorded as a machine of another cluster, protected, a template, locked, managed by high
availability, replicated, part of a linked clone, or a container: name that cluster, or
change the VM in Proxmox first.

The command lists what it deletes, what stays and why, and asks for the range; without
a terminal it requires --yes. --dry-run stops after the list. castle stops each VM,
checks it again, deletes it and verifies that it is gone; the first mismatch ends the
command. nuke/ in the state directory records the deletions. The states of the affected
clusters are archived if all their VMs are gone. Unreferenced disks with an id of the
range in their names are listed first; --unreferenced-disks deletes those whose id is
free by then. A storage shared by several Proxmox clusters may hold disks of another
one: check first.

Without --vmid-range, it deletes what is labelled as --cluster's in a project of Hetzner
Cloud: servers, load balancers, volumes, primary IPs, firewalls, placement groups,
networks and snapshots with the label castle_cluster and a label castle_uuid, and the load
balancers and volumes that controllers of the cluster have made. The API token comes from
HCLOUD_TOKEN or the record of the cluster. What is protected stays, and what something
else than the cluster works with. A recorded key has to prove the uuids. A resource that
has the cluster's name alone is foreign.

Exit code 6 if anything remains, what was refused included.`,
		SuggestFor: []string{"wipe"},
		Example: `  castle nuke --vmid-range 421-432 --cluster blue --dry-run
  castle nuke --vmid-range 421-432 --endpoint https://proxmox.example:8006
  castle nuke --vmid-range 421-432 --foreign=425 --yes
  castle nuke --cluster green --dry-run`,
		Args: usage(func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("nuke takes no argument; name a cluster with --cluster %s", args[0])
			}
			return nil
		}),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := completeNuke(a, &o, ids, foreign); err != nil {
				return usageError(cmd, err)
			}
			n, err := nuke.Survey(cmd.Context(), o)
			switch {
			case err != nil:
				return err
			case dry:
				return a.print(n, func(w io.Writer) { printNuke(w, n) })
			}
			return runNuke(cmd.Context(), a, n, o.Repository)
		},
	}
	f := cmd.Flags()
	f.StringVar(&ids, "vmid-range", "", "the ids to clear, `FROM-TO` or one id")
	f.StringVar(&o.Cluster, "cluster", "",
		"only machines of `CLUSTER`; endpoint and token from its record, unless given")
	f.StringVar(&o.Datacenter.Endpoint, "endpoint", "",
		"API `URL` (default $PROXMOX_VE_ENDPOINT or $HCLOUD_ENDPOINT)")
	f.StringVar(&o.Datacenter.CA, "ca-file", "", "trust the certificate in `FILE`, too")
	f.BoolVar(&o.Datacenter.Insecure, "insecure", false,
		"accept any certificate (default $PROXMOX_VE_INSECURE)")
	f.StringArrayVar(&foreign, "foreign", nil, "delete the foreign VM `ID`, too; repeatable")
	f.BoolVar(&o.Unreferenced, "unreferenced-disks", false,
		"delete unreferenced disks with an id of the range, too")
	f.BoolVar(&a.yes, "yes", false, "do not ask")
	f.BoolVar(&dry, "dry-run", false, "only list what is deleted and what stays")
	return cmd
}

// completeNuke adds the ids and the environment to the options that the flags have set.
func completeNuke(a *app, o *nuke.Options, ids string, foreign []string) error {
	var err error
	switch {
	case ids != "":
		if o.Range, err = platform.ParseRange(ids); err != nil {
			return fmt.Errorf("--vmid-range: %w", err)
		}
	case o.Cluster == "":
		return errors.New("requires --vmid-range, such as --vmid-range 421-432, or --cluster of one in " +
			"Hetzner Cloud")
	case len(foreign) > 0, o.Unreferenced, o.Datacenter.CA != "", o.Datacenter.Insecure:
		return errors.New("--foreign, --unreferenced-disks, --ca-file and --insecure require --vmid-range")
	default:
		o.Platform = hcloud.Platform{}
	}
	for _, text := range foreign {
		id, err := strconv.Atoi(text)
		switch {
		case err != nil:
			return fmt.Errorf("--foreign %q is not a VM id; pass one id per flag", text)
		case !o.Range.Contains(id):
			return fmt.Errorf("--foreign %d is outside the range %s", id, o.Range)
		}
		o.Foreign = append(o.Foreign, id)
	}
	o.StateDir, o.Environ, o.Version = a.stateDir, a.environ, a.version
	o.Repository, _ = folders.Find(a.directory) //nolint:errcheck // it needs none
	set := o.Platform.Environment(a.environ)
	o.DefaultEndpoint, o.Datacenter.Token = set.Endpoint, set.Token
	if ids == "" {
		o.DefaultEndpoint = cmp.Or(set.Endpoint, hcloud.DefaultEndpoint)
	}
	if text := process.Getenv(a.environ, "PROXMOX_VE_INSECURE"); text != "" && !o.Datacenter.Insecure {
		if o.Datacenter.Insecure, err = strconv.ParseBool(text); err != nil {
			return fmt.Errorf("PROXMOX_VE_INSECURE=%s is neither true nor false", text)
		}
	}
	return nil
}

func runNuke(ctx context.Context, a *app, n *nuke.Nuke, repository string) error {
	if err := printTable(a.stderr, func(w io.Writer) { printNuke(w, n) }); err != nil {
		return err
	}
	if n.NothingToDo() {
		return errors.Join(printNuked(a, n), n.Left())
	}
	if err := checkNukeProtection(ctx, a, repository, n); err != nil {
		return err
	}
	what, name := "the range", n.Range
	if name == "" {
		what, name = "the cluster", n.Cluster
	}
	if err := confirm(a, what, name, "delete them", "nothing was deleted"); err != nil {
		return err
	}
	surviveClosedPipe()
	err := tracedNuke(ctx, a, n)
	return errors.Join(printNuked(a, n), err)
}

// checkNukeProtection refuses to delete VMs of a cluster that the repository, if there is one, protects.
func checkNukeProtection(ctx context.Context, a *app, repository string, n *nuke.Nuke) error {
	if repository == "" {
		return nil
	}
	names := xslices.Map(n.States, func(s nuke.State) string { return s.Cluster })
	if n.Cluster != "" {
		names = append(names, n.Cluster)
	}
	for _, name := range names {
		c, err := a.open(ctx, cluster.Options{Cluster: name, Recorded: true})
		if err != nil {
			continue // the repository does not have it
		}
		if err := checkProtection(a, c); err != nil {
			return err
		}
	}
	return nil
}

// verdict is a row's first column in the list of a nuke.
func verdict(deletes bool) string {
	if deletes {
		return "delete"
	}
	return "KEEP"
}

func printNuke(w io.Writer, n *nuke.Nuke) {
	of, none := "In the range "+n.Range, "no VM has any of these ids"
	if n.Range == "" {
		of, none = "Labelled as the cluster "+n.Cluster+"'s", "nothing has its label"
	}
	fmt.Fprintf(w, "%s at %s:\n", of, n.Endpoint)
	for i, d := range n.Disks {
		remarks := cmp.Or(d.Refused, textIf(!d.Chosen, "unreferenced; --unreferenced-disks deletes it")) +
			textIf(d.Shared, "; shared storage: another Proxmox cluster may use it") // the user has to know
		fmt.Fprintf(w, "  %s\tdisk %s\t%s\t%s\t%s\t%s%s", verdict(d.Goes()), d.Volume, d.Node, d.Storage,
			bytes(d.Size), strings.TrimPrefix(remarks, "; "),
			cmp.Or(textIf(i < len(n.Disks)-1, "\n"), "\f")) // the VMs have columns of their own
	}
	for _, g := range n.Guests {
		why := cmp.Or(strings.Join(g.Refused, ", "),
			textIf(g.Foreign, "foreign; deleted because of --foreign"))
		fmt.Fprintf(w, "  %s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", verdict(g.Goes()),
			textIf(n.Range == "", g.Kind+" ")+strconv.Itoa(g.ID), cmp.Or(g.Name, "-"),
			cmp.Or(g.Node, "-"), cmp.Or(textIf(g.Status != "", g.State), "-"),
			cmp.Or(strings.Join(g.Tags, ","), "no tags"),
			cmp.Or(textIf(g.UUID != "", "uuid "+g.UUID), "no uuid known"), why)
	}
	writeRemarks(w, textIf(len(n.Guests) == 0, none))
	for _, s := range n.States {
		fmt.Fprintf(w, "  the state of %s %s\n", s.Cluster, cmp.Or(textIf(s.Stays != "", "stays: "+s.Stays),
			"is archived when its machines are gone"))
	}
	writeRemarks(w, n.Remarks...)
}

// bytes formats a size in the unit that Proxmox shows.
func bytes(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	size, unit := float64(n), 0
	for size >= 1024 && unit < len(units)-1 {
		size, unit = size/1024, unit+1
	}
	return fmt.Sprintf("%.4g %s", size, units[unit])
}

// printNuked prints the result of a nuke.
func printNuked(a *app, n *nuke.Nuke) error {
	return a.print(n, func(w io.Writer) {
		for _, g := range n.Guests {
			if g.Deleted {
				fmt.Fprintf(w, "deleted  %s %q%s\n", g.Called, g.Name, textIf(g.Where != "", " "+g.Where))
			}
		}
		for _, d := range n.Disks {
			if d.Deleted {
				fmt.Fprintf(w, "deleted  disk %s on node %s\n", d.Volume, d.Node)
			}
		}
		for _, s := range n.States {
			switch {
			case len(s.Archived) > 0:
				fmt.Fprintf(w, "archived  the state of %s: %s\n", s.Cluster, strings.Join(s.Archived, ", "))
			case s.Stays != "":
				fmt.Fprintf(w, "kept  the state of %s: %s\n", s.Cluster, s.Stays)
			}
			if len(s.Outside) > 0 {
				fmt.Fprintf(w, "outside  still exists, recorded only in the archive: %s\n",
					strings.Join(s.Outside, ", "))
			}
		}
		for _, remark := range n.Remarks {
			fmt.Fprintf(w, "note  %s\n", remark)
		}
		if n.Journal != "" {
			fmt.Fprintf(w, "journal  %s\n", n.Journal)
		}
	})
}
