package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/foreign"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/run/backup"
	"github.com/ephemeral-castle/castle/internal/run/survival"
	"github.com/ephemeral-castle/castle/internal/state/backups"
)

func newBackup(a *app) *cobra.Command {
	o := backup.Options{}
	cmd := a.valueFlags(&cobra.Command{
		Use:   "backup CLUSTER",
		Short: "Back up etcd, which holds every object of Kubernetes",
		Long: `Take a snapshot of the cluster's etcd through Talos, verify it, and store it where the
state is: in the store, encrypted and signed like the state, or in the state directory.
Backups outlive a destroy of the cluster.

castle compares the hash that etcd appends, and checks each page of the database, before
it stores anything. A database above 1 GiB is refused. Of all backups the newest stay,
as many as --keep says. With --if-older-than, castle takes none if the newest is younger:
any timer can run the command at any time.

A backup holds the objects of Kubernetes, Secrets included, and no data of volumes. Data
of survives blocks are saved, too, while applications write to them, and read in their
object store. --keep does not count those saves.

castle restore needs the same keys that the cluster had: those are in the state.`,
		Example: `  castle backup blue
  castle backup blue --if-older-than 6h --keep 28
  castle backup list blue
  castle backup verify blue`,
		SuggestFor: []string{"snapshot"},
		Args:       a.oneCluster(),
		RunE: onBackups(a, func(ctx context.Context, r *run.Run, _ []string) error {
			if o.Keep < 1 || o.IfOlderThan < 0 {
				return refuse("--keep is at least 1, and --if-older-than is not negative")
			}
			return takeBackup(ctx, a, r, o)
		}),
	})
	cmd.Flags().DurationVar(&o.IfOlderThan, "if-older-than", 0,
		"do nothing if the newest backup is younger than `DURATION`")
	cmd.Flags().IntVar(&o.Keep, "keep", backup.Keep, "how many backups stay, the newest `COUNT`")
	cmd.AddCommand(newBackupList(a), newBackupVerify(a))
	return cmd
}

// takeBackup backs up etcd and saves the data, whichever fails.
func takeBackup(ctx context.Context, a *app, r *run.Run, o backup.Options) error {
	data, failed := survival.Take(ctx, r, o.IfOlderThan)
	result, err := backup.Take(ctx, r, o)
	if result == nil {
		result = &backup.Result{Deleted: []string{}, Place: r.Cluster.Place()}
	}
	result.Data = data
	printed := a.print(result, func(w io.Writer) {
		if result.Backup != nil {
			printBackup(w, result)
		}
		for _, d := range data {
			printTaken(w, d)
		}
	})
	return errors.Join(printed, err, failed)
}

func printTaken(w io.Writer, t survival.Taken) {
	if !t.Taken {
		fmt.Fprintf(w, "data %s: save %s is %s old; no new one was taken\n", t.Name, t.Save.ID,
			ageOf(t.Save.Time))
		return
	}
	fmt.Fprintf(w, "data %s: save %s, proved in the object store, in %s\n", t.Name, t.Save.ID,
		foreign.OneLine(t.Save.Path))
}

// onBackups returns a runE that reads the state of a cluster and holds no lock.
func onBackups(a *app, do func(ctx context.Context, r *run.Run, args []string) error) runE {
	return a.onCluster(nil, func(ctx context.Context, c *cluster.Cluster, args []string) error {
		r := run.Observe(ctx, c)
		_, err := r.LastKnownStates()
		if err == nil {
			err = do(ctx, r, args)
		}
		return c.MaskError(err)
	})
}

func printBackup(w io.Writer, result *backup.Result) {
	b := result.Backup
	if !result.Taken {
		fmt.Fprintf(w, "backup %s is %s old; no new one was taken\n", b.ID, ageOf(b.Time))
		return
	}
	fmt.Fprintf(w, "backup %s: %s, revision %d, verified, in %s\n", b.ID, bytes(b.Bytes), b.Revision,
		result.Place)
	if len(result.Deleted) > 0 {
		fmt.Fprintf(w, "deleted what --keep does not keep: %s\n", strings.Join(result.Deleted, ", "))
	}
}

func ageOf(at time.Time) string { return briefly(time.Since(at).Seconds()) }

func newBackupList(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "list CLUSTER",
		Short: "List the backups of a cluster, the newest first",
		Long: `List the backups of a cluster, the newest first, and below them the saves of its data.
castle reads their manifests only.`,
		Example: "  castle backup list blue -o json",
		Args:    a.oneCluster(),
		RunE: onBackups(a, func(ctx context.Context, r *run.Run, _ []string) error {
			shelf, err := r.Cluster.Backups(ctx)
			if err != nil {
				return err
			}
			ids, err := shelf.IDs(ctx)
			document := struct {
				Cluster string            `json:"cluster"`
				Place   string            `json:"place"`
				Backups []*backups.Backup `json:"backups"`
				Data    []survival.Listed `json:"data"`
			}{r.Cluster.Name(), r.Cluster.Place(), []*backups.Backup{}, survival.List(ctx, r)}
			for _, id := range ids {
				b, unread := shelf.Find(ctx, id)
				if err = errors.Join(err, unread); unread == nil {
					document.Backups = append(document.Backups, b)
				}
			}
			printed := a.print(document, func(w io.Writer) {
				printBackups(a, w, document.Backups)
				printSaves(a, w, document.Data)
			})
			return errors.Join(printed, err)
		}),
	}
}

func printBackups(a *app, w io.Writer, all []*backups.Backup) {
	if len(all) == 0 {
		fmt.Fprintln(a.stderr, "castle: there is no backup")
		return
	}
	fmt.Fprintln(w, "backup\ttime\tage\tsize\trevision\tKubernetes\tTalos\tby")
	for _, b := range all {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\n", b.ID, localTime(b.Time), ageOf(b.Time),
			bytes(b.Bytes), b.Revision, foreign.OneLine(b.Kubernetes), foreign.OneLine(b.Talos),
			foreign.OneLine(b.By))
	}
}

// printSaves lists the saves of data, below the backups of etcd.
func printSaves(a *app, w io.Writer, all []survival.Listed) {
	rows := 0
	for _, l := range all {
		rows += len(l.Saves)
		switch {
		case l.Problem != "":
			fmt.Fprintf(a.stderr, "castle: the saves of data %s are unknown: %s\n", l.Name, l.Problem)
		case len(l.Saves) == 0:
			fmt.Fprintf(a.stderr, "castle: data %s were never saved\n", l.Name)
		}
	}
	if rows == 0 {
		return
	}
	fmt.Fprintln(w, "save\ttime\tage\tsize\tdata\tin")
	for _, l := range all {
		for _, s := range l.Saves {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", foreign.OneLine(s.ID), localTime(s.Time),
				ageOf(s.Time), bytes(s.Bytes), l.Name, foreign.OneLine(s.Path))
		}
	}
}

func newBackupVerify(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "verify CLUSTER [BACKUP]",
		Short: "Read a backup and check that the cluster could be restored from it",
		Long: `Read a backup, the newest one without its id, and check it as when it was taken: the hash
of each part, the hash that etcd has appended, and each page of the database. Compare the
fingerprints of its keys with those in the state. Exit code 1 if one differs: then the
cluster cannot be restored from this backup. A save of data counts if all of its parts
are in the object store.`,
		Example: `  castle backup verify blue
  castle backup verify blue 20261125-031500-k3zq`,
		Args: a.cluster(cobra.RangeArgs(1, 2)),
		RunE: onBackups(a, func(ctx context.Context, r *run.Run, args []string) error {
			return verifyBackups(ctx, a, r, strings.Join(args, ""))
		}),
	}
}

// verifyBackups verifies the backup or the save with an id, or the newest of each.
func verifyBackups(ctx context.Context, a *app, r *run.Run, id string) error {
	data, v := survival.Verify(ctx, r, id), &backup.Verified{}
	isSave := func(p survival.Proof) bool { return id != "" && p.Save != nil }
	if !slices.ContainsFunc(data, isSave) {
		var err error
		if v, err = backup.Verify(ctx, r, cmp.Or(id, backup.Newest), nil); err != nil {
			return err
		}
	}
	broken := len(v.OtherKeys) > 0
	for _, p := range data {
		if p.Save != nil || id == "" {
			v.Data, broken = append(v.Data, p), broken || p.Problem != ""
		}
	}
	err := a.print(v, func(w io.Writer) {
		if v.Backup != nil {
			printVerified(w, v)
		}
		for _, p := range v.Data {
			printProof(w, p)
		}
	})
	if err == nil && broken {
		err = exitError(exitFailed)
	}
	return err
}

func printProof(w io.Writer, p survival.Proof) {
	switch {
	case p.Problem != "":
		fmt.Fprintf(w, "data %s: cannot be restored: %s\n", p.Name, p.Problem)
	case p.Save == nil:
		fmt.Fprintf(w, "data %s: never saved\n", p.Name)
	default:
		fmt.Fprintf(w, "data %s: save %s, %s old: all of it is in the object store\n", p.Name, p.Save.ID,
			ageOf(p.Save.Time))
	}
}

func printVerified(w io.Writer, v *backup.Verified) {
	b := v.Backup
	fmt.Fprintf(w, "backup %s, %s old: %s, revision %d: intact\n", b.ID, ageOf(b.Time), bytes(b.Bytes),
		b.Revision)
	switch {
	case len(v.OtherKeys) > 0:
		fmt.Fprintf(w, "the cluster has other keys now, and cannot be restored from it: %s\n",
			strings.Join(v.OtherKeys, ", "))
	case !v.Compared:
		fmt.Fprintln(w, "the state has no configuration of a control plane: its keys were not compared")
	default:
		fmt.Fprintln(w, "its keys are those of the cluster")
	}
}
