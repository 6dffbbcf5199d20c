package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/ephemeral-castle/castle/internal/castle"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/process"
)

func newNuke(a *app) *cobra.Command {
	var f nukeFlags
	cmd := &cobra.Command{
		Use:   "nuke --vmid-range FROM-TO",
		Short: "Delete castle's virtual machines in a range of ids, without any state",
		Long: `Delete castle's own virtual machines in a range of ids: for when the state is
lost, or lies. It needs no cluster and no state; Proxmox is found with --endpoint
or PROXMOX_VE_ENDPOINT, the API token with PROXMOX_VE_API_TOKEN (there is no flag
for it, others could see it), or both with --cluster in what was recorded of it;
that endpoint comes before the environment's, and that token after it.

Castle's own is a machine in the range that is tagged "castle" and either named
after a cluster that it is tagged with (blue-cp-01) or in the pool "castle".
--foreign=ID lets one machine go that is not; it may be repeated. Nothing lets go
what is protected, a template, locked, managed by high availability, replicated,
part of a linked clone or a container: change that in Proxmox first.

It shows what goes, what stays and why, and asks for the range; without a
terminal it needs --yes. --dry-run stops after the table. Each machine is stopped,
looked at again, deleted and proved gone; the first that is not as the table says
ends it all. What was deleted is written to nuke/ below the state directory. Then
the states of the clusters concerned are archived, if their machines are all gone.
A machine that is not the one that a cluster's state knows by its id is not castle's
own either. Disks that carry an id in their names and that no guest uses are listed
first; --unreferenced-disks deletes them, if their id is free by then. On a storage
that several Proxmox clusters share they may be another one's: look before.

Exit code 6 if anything is left in the range, what was refused included.`,
		Example: `  castle nuke --vmid-range 421-432 --cluster blue --dry-run
  castle nuke --vmid-range 421-432 --endpoint https://proxmox.example:8006
  castle nuke --vmid-range 421-432 --foreign=425 --yes`,
		Args: usage(func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("takes no argument, but was given %s; a cluster is named with --cluster", strings.Join(args, " "))
			}
			return nil
		}),
		RunE: func(cmd *cobra.Command, _ []string) error {
			o, err := f.options(a)
			if err != nil {
				return usageError(cmd, err)
			}
			return a.nuke(cmd, o, f)
		},
	}
	cmd.Flags().StringVar(&f.ids, "vmid-range", "", "the ids to clear, `FROM-TO` or one id")
	cmd.Flags().StringVar(&f.cluster, "cluster", "", "only machines of `CLUSTER`; endpoint and token as they were recorded, unless given")
	cmd.Flags().StringVar(&f.endpoint, "endpoint", "", "where Proxmox is, `URL` (default $PROXMOX_VE_ENDPOINT)")
	cmd.Flags().StringVar(&f.ca, "ca-file", "", "trust the certificate in `FILE` besides the system's")
	cmd.Flags().BoolVar(&f.insecure, "insecure", false, "accept any certificate (default $PROXMOX_VE_INSECURE)")
	cmd.Flags().StringArrayVar(&f.foreign, "foreign", nil, "the machine `ID` goes, too, though nothing says that it is castle's; may be repeated")
	cmd.Flags().BoolVar(&f.disks, "unreferenced-disks", false, "delete the disks, too, that carry an id of the range and that no guest uses")
	cmd.Flags().BoolVar(&f.yes, "yes", false, "do not ask")
	cmd.Flags().BoolVar(&f.dry, "dry-run", false, "only show what goes and what stays")
	return cmd
}

type nukeFlags struct {
	ids, cluster, endpoint, ca string
	foreign                    []string
	insecure, yes, dry, disks  bool
}

// options completes the flags by the environment.
func (f nukeFlags) options(a *app) (castle.NukeOptions, error) {
	o := castle.NukeOptions{StateDir: a.stateDir, Environ: a.environ, Cluster: f.cluster, Unreferenced: f.disks}
	if f.ids == "" {
		return o, errors.New("needs --vmid-range, such as --vmid-range 421-432")
	}
	var err error
	if o.Range, err = castle.ParseRange(f.ids); err != nil {
		return o, fmt.Errorf("--vmid-range: %w", err)
	}
	for _, text := range f.foreign {
		id, err := strconv.Atoi(text)
		switch {
		case err != nil:
			return o, fmt.Errorf("--foreign %q is no VM id; each is named by itself", text)
		case !o.Range.Contains(id):
			return o, fmt.Errorf("--foreign %d lies outside the range %s", id, o.Range)
		}
		o.Foreign = append(o.Foreign, id)
	}
	if repository, err := config.FindRepository(a.directory); err == nil {
		o.Repository = repository
	}
	o.Datacenter.Endpoint, o.DefaultEndpoint = f.endpoint, process.Getenv(a.environ, "PROXMOX_VE_ENDPOINT")
	o.Datacenter.Token = process.Getenv(a.environ, "PROXMOX_VE_API_TOKEN")
	o.Datacenter.CA, o.Datacenter.Insecure = f.ca, f.insecure
	if text := process.Getenv(a.environ, "PROXMOX_VE_INSECURE"); text != "" && !f.insecure {
		if o.Datacenter.Insecure, err = strconv.ParseBool(text); err != nil {
			return o, fmt.Errorf("PROXMOX_VE_INSECURE=%s is neither true nor false", text)
		}
	}
	return o, nil
}

func (a *app) nuke(cmd *cobra.Command, o castle.NukeOptions, f nukeFlags) error {
	n, err := castle.Survey(cmd.Context(), o)
	if err != nil {
		return err
	}
	if err := a.showNuke(n, f.dry); err != nil || f.dry {
		return err
	}
	if n.Idle() {
		return errors.Join(a.showNuked(n), n.Left())
	}
	if err := a.mayNuke(n); err != nil {
		return err
	}
	if err := a.typed("the range", n.Range, "delete what goes", "nothing was deleted", f.yes); err != nil {
		return err
	}
	surviveClosedPipe()
	err = n.Run(cmd.Context(), a.say)
	return errors.Join(a.showNuked(n), err)
}

// mayNuke refuses to take machines of a cluster whose configuration protects it,
// if this is a repository that has it.
func (a *app) mayNuke(n *castle.Nuke) error {
	if _, err := config.FindRepository(a.directory); err != nil {
		return nil //nolint:nilerr // a nuke needs none
	}
	for _, s := range n.States {
		c, err := a.openAs(castle.Options{Cluster: s.Cluster, Recorded: true})
		if err != nil {
			continue // it is not in this repository
		}
		if err := a.mayGo(c); err != nil {
			return err
		}
	}
	return nil
}

// showNuke prints the table, as the result of a dry run and else for the eyes.
func (a *app) showNuke(n *castle.Nuke, result bool) error {
	switch {
	case result && a.output == "json":
		return a.printJSON(n)
	case result:
		return printNuke(a.stdout, n)
	}
	return printNuke(a.stderr, n)
}

func printNuke(w io.Writer, n *castle.Nuke) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "In the range %s at %s:\n", n.Range, n.Endpoint)
	for _, d := range n.Disks {
		fmt.Fprintf(t, "  %s\tdisk %s\t%s\t%s\t%s\t%s\n", diskVerdict(d), d.Volume, d.Node, d.Storage, bytes(d.Size), strings.Join(diskRemarks(d), "; "))
	}
	if err := t.Flush(); err != nil { // the machines have columns of their own
		return err
	}
	for _, g := range n.Guests {
		verdict, why := "goes", strings.Join(g.Refused, ", ")
		switch {
		case !g.Goes():
			verdict = "STAYS"
		case g.Foreign:
			why = "not castle's own; it goes because of --foreign"
		}
		fmt.Fprintf(t, "  %s\t%d\t%s\t%s\t%s\t%s\t%s\n", verdict, g.ID, cmp.Or(g.Name, "-"), cmp.Or(g.Node, "-"), cmp.Or(g.Status, "-"),
			cmp.Or(strings.Join(g.Tags, ","), "no tags"), why)
	}
	if len(n.Guests) == 0 {
		fmt.Fprintf(t, "  nothing; no machine has any of these ids\n")
	}
	for _, s := range n.States {
		if s.Stays != "" {
			fmt.Fprintf(t, "  the state of %s stays: %s\n", s.Cluster, s.Stays)
			continue
		}
		fmt.Fprintf(t, "  the state of %s is archived when its machines are gone\n", s.Cluster)
	}
	for _, remark := range n.Remarks {
		fmt.Fprintf(t, "  %s\n", remark)
	}
	return t.Flush()
}

func diskVerdict(d castle.NukeDisk) string {
	if d.Goes() {
		return "goes"
	}
	return "STAYS"
}

// diskRemarks say of a disk what decides, and what only the user can know.
func diskRemarks(d castle.NukeDisk) []string {
	var remarks []string
	switch {
	case d.Refused != "":
		remarks = append(remarks, d.Refused)
	case !d.Chosen:
		remarks = append(remarks, "nothing uses it; --unreferenced-disks deletes it")
	}
	if d.Shared {
		remarks = append(remarks, "shared storage: another Proxmox cluster may use it")
	}
	return remarks
}

// bytes is a size in the unit that Proxmox shows.
func bytes(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	size, unit := float64(n), 0
	for size >= 1024 && unit < len(units)-1 {
		size, unit = size/1024, unit+1
	}
	return fmt.Sprintf("%.4g %s", size, units[unit])
}

// showNuked prints what was done.
func (a *app) showNuked(n *castle.Nuke) error {
	if a.output == "json" {
		return a.printJSON(n)
	}
	deleted := slices.DeleteFunc(slices.Clone(n.Guests), func(g castle.NukeGuest) bool { return !g.Deleted })
	var lines []string
	for _, g := range deleted {
		lines = append(lines, fmt.Sprintf("deleted  VM %d %q on node %s", g.ID, g.Name, g.Node))
	}
	for _, d := range n.Disks {
		if d.Deleted {
			lines = append(lines, fmt.Sprintf("deleted  disk %s on node %s", d.Volume, d.Node))
		}
	}
	for _, s := range n.States {
		switch {
		case len(s.Archived) > 0:
			lines = append(lines, fmt.Sprintf("archived  the state of %s: %s", s.Cluster, strings.Join(s.Archived, ", ")))
		case s.Stays != "":
			lines = append(lines, fmt.Sprintf("kept  the state of %s: %s", s.Cluster, s.Stays))
		}
		if len(s.Outside) > 0 {
			lines = append(lines, "beyond  still there, as only the archive knows: "+strings.Join(s.Outside, ", "))
		}
	}
	for _, remark := range n.Remarks {
		lines = append(lines, "remark  "+remark)
	}
	if n.Journal != "" {
		lines = append(lines, "journal  "+n.Journal)
	}
	if len(lines) == 0 {
		return nil
	}
	_, err := fmt.Fprintln(a.stdout, strings.Join(lines, "\n"))
	return err
}
