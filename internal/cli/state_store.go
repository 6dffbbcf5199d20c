package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/foreign"
	"github.com/ephemeral-castle/castle/internal/operation/share"
	"github.com/ephemeral-castle/castle/internal/state/commits"
	"github.com/ephemeral-castle/castle/internal/state/keys"
)

func newStateLog(a *app) *cobra.Command {
	limit := 0
	cmd := &cobra.Command{
		Use:   "log CLUSTER",
		Short: "Show the commits of the state in a store",
		Long: `Show the commits that the store still has, the newest first: number, time, who made it,
in which run and for what, how many files changed, and their size. castle removes the
commits of older runs. Requires a store; see docs/state.md.`,
		Example:    "  castle state log blue --limit 20",
		SuggestFor: []string{"history"},
		Args:       a.oneCluster(),
		RunE: onPlace(a, func(ctx context.Context, c *cluster.Cluster) error {
			if limit < 0 {
				return refuse("--limit %d is negative", limit)
			}
			entries, err := share.History(ctx, c, limit)
			if err != nil {
				return err
			}
			document := struct {
				Cluster  string        `json:"cluster"`
				Platform string        `json:"platform"`
				Store    string        `json:"store"`
				Commits  []share.Entry `json:"commits"`
			}{c.Config.Name, c.Config.Platform, c.Place(), entries}
			return a.print(document, func(w io.Writer) { printLog(a, w, c, entries) })
		}),
	}
	cmd.Flags().IntVar(&limit, "limit", 0, "show only the newest `COUNT` commits (default all)")
	return cmd
}

func printLog(a *app, w io.Writer, c *cluster.Cluster, all []share.Entry) {
	if len(all) == 0 {
		fmt.Fprintf(a.stderr, "castle: %s has no commit in %s\n", c.Name(), c.Place())
		return
	}
	fmt.Fprintf(w, "commit\ttime\twho\trun\tfiles\tsize\twhat\n")
	for _, e := range all {
		changed, size := "-", "-"
		if e.Changed != nil {
			changed, size = strconv.Itoa(*e.Changed), bytes(*e.Bytes)
		}
		what := e.What + textIf(e.Moved != "", "; the state is in "+e.Moved) +
			textIf(e.Untrusted, "; not signed by a signer in castle.hcl")
		fmt.Fprintf(w, "%d\t%s\t%s@%s\t%s\t%s\t%s\t%s\n", e.Number, localTime(e.Time), e.User, e.Host,
			cmp.Or(e.Run, "-"), changed, size, foreign.OneLine(what))
	}
}

func newStateMigrate(a *app) *cobra.Command {
	to := ""
	cmd := &cobra.Command{
		Use:   "migrate CLUSTER --to URL",
		Short: "Move the state to a store, to another store, or back to this machine",
		Long: `Move the state of a cluster to the store at a URL, or with --to local to the state
directory of this machine. castle takes the lock, copies the whole state, encrypted as
castle.hcl says, reads everything back, and compares it byte for byte. Only then it
marks the source as moved: no command works on it any more. Until then the source
stays valid. The same command completes an interrupted migration.

castle refuses a target that already holds a state of the cluster. It changes no
configuration, and says what belongs into castle.hcl afterwards.`,
		Example: `  castle state migrate blue --to 's3://castle-state/homelab?region=eu-central-1'
  castle state migrate blue --to postgres://db.example.org/castle
  castle state migrate blue --to local`,
		Args: a.cluster(cobra.MatchAll(cobra.ExactArgs(1), func(*cobra.Command, []string) error {
			if to == "" {
				return errors.New("requires --to with the URL of a store (s3://, postgres://, " +
					"file://), or --to local")
			}
			return nil
		})),
		RunE: onPlace(a, func(ctx context.Context, c *cluster.Cluster) error {
			done, err := share.Migrate(ctx, c, to, noticeLine(a))
			if err != nil {
				return err
			}
			printMigration(a.stderr, c, done)
			return nil
		}),
	}
	cmd.Flags().StringVar(&to, "to", "", "the `URL` of the store, or local")
	return cmd
}

func printMigration(w io.Writer, c *cluster.Cluster, m *share.Migration) {
	if m.From == m.To {
		fmt.Fprintf(w, "castle: the state of %s is in %s already; nothing was copied\n", c.Name(), m.To)
	} else {
		fmt.Fprintf(w, "castle: moved the state of %s from %s to %s: %s, %s\n", c.Name(), m.From, m.To,
			count(m.Files, "file"), bytes(m.Bytes))
	}
	configured := ""
	if c.Store != nil {
		configured = c.Place()
	}
	switch {
	case configured == m.Store:
	case m.Store == "":
		fmt.Fprintln(w, "  remove `store = …` from the block state of castle.hcl, and unset "+
			"CASTLE_STATE_STORE")
	default:
		fmt.Fprintf(w, "  add this to castle.hcl, or set CASTLE_STATE_STORE to the URL:\n\n"+
			"    state {\n      store = %q\n    }\n\n", m.Store)
	}
}

func newStateIdentity(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "identity",
		Short: "Show the public keys of this environment's identity",
		Long: `Show the public keys of the identity in CASTLE_AGE_IDENTITY or CASTLE_AGE_IDENTITY_FILE, as
lines for the block encryption of castle.hcl: the recipient, who can read, and the signer,
who may write. Both are derived from the identity, which castle does not show.`,
		Example: "  castle state identity",
		Args:    usage(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			text, err := keys.FromEnviron(a.environ)
			all, unread := keys.Parse(text)
			switch {
			case errors.Join(err, unread) != nil:
				return refuse("%v", errors.Join(err, unread))
			case len(all) == 0:
				return refuse("there is no identity: set %s, or %s to the path of its file; age-keygen "+
					"makes one", keys.IdentityVariable, keys.IdentityFileVariable)
			}
			return a.print(all, func(w io.Writer) {
				for _, one := range all {
					fmt.Fprintf(w, "recipients = [%q]\nsigners    = [%q]\n", one.Recipient, one.Signer)
				}
			})
		},
	}
}

func newStateRekey(a *app) *cobra.Command {
	trust := ""
	cmd := &cobra.Command{
		Use:   "rekey CLUSTER",
		Short: "Encrypt and sign the state anew after a change of keys",
		Long: `Encrypt the newest commit for the recipients in castle.hcl, and sign it with the key of
this environment's identity. Change both lists there first. castle takes the lock and
makes a new commit; older ones keep their keys until castle removes them.

The newest commit must be signed by a signer in castle.hcl or by a key of this
environment. --trust accepts that of a signer who has left, or with unsigned one without
a signature and contents in clear, from before there were signers. It asks for the
cluster's name; without a terminal it requires --yes.`,
		Example: `  castle state rekey blue
  castle state rekey blue --trust unsigned`,
		Args: a.cluster(cobra.MatchAll(cobra.ExactArgs(1), func(*cobra.Command, []string) error {
			if trust == "" || trust == commits.Unsigned {
				return nil
			}
			return keys.CheckSigner(trust)
		})),
		RunE: onPlace(a, func(ctx context.Context, c *cluster.Cluster) error {
			rekeyed, err := share.Rekey(ctx, c, trust, func(head *commits.Commit) error {
				if trust == "" {
					return nil
				}
				fmt.Fprintf(a.stderr, "Would accept commit %d of %s by %s@%s (%s), signed by %s, as it is "+
					"in %s\n", head.Sequence, localTime(head.Time), head.User, head.Host,
					foreign.OneLine(head.What), cmp.Or(head.Signer, "nobody"), c.Place())
				return confirmCluster(a, c, "sign it", "nothing was signed")
			}, noticeLine(a))
			if err != nil {
				return err
			}
			fmt.Fprintf(a.stderr, "castle: encrypted the state of %s for %s and signed it, as commit %d\n",
				c.Name(), count(len(rekeyed.Recipients), "recipient"), rekeyed.Sequence)
			return nil
		}),
	}
	cmd.Flags().StringVar(&trust, "trust", "", "accept the newest commit of this `SIGNER`, or unsigned")
	cmd.Flags().BoolVar(&a.yes, "yes", false, "do not ask")
	return cmd
}

// restoreCommit goes back to a commit of the store, for castle state restore --commit.
func restoreCommit(ctx context.Context, a *app, c *cluster.Cluster, number int64) error {
	if c.Store != nil && c.Copy == nil {
		_, err := c.Store.Open(c.Dir) // the state is elsewhere
		return err
	}
	re, err := share.PrepareRestore(ctx, c, number)
	if err != nil {
		return err
	}
	if re.Damaged != nil {
		fmt.Fprintf(a.stderr, "castle: commit %d of %s, the newest, is damaged\n", re.Damaged.Commit,
			c.Name())
	}
	if re.Same {
		fmt.Fprintf(a.stderr, "castle: %s: the state already is that of commit %d; nothing was changed\n",
			c.Name(), number)
		return nil
	}
	if err := printTable(a.stderr, func(w io.Writer) { printRestoration(w, c, re) }); err != nil {
		return err
	}
	if err := confirmCluster(a, c, "restore it", "nothing was restored"); err != nil {
		return err
	}
	restored, err := share.Restore(ctx, c, re, noticeLine(a))
	if err != nil {
		return err
	}
	fmt.Fprintf(a.stderr, "castle: restored commit %d of %s as commit %d\n"+
		"  machines and other objects are as they were: `%s` shows how they differ\n", number, c.Name(),
		restored.Sequence, c.Command("plan"))
	return nil
}

// printRestoration shows the changes of a restore from a commit.
func printRestoration(w io.Writer, c *cluster.Cluster, re *share.Restoration) {
	fmt.Fprintf(w, "Would restore in %s commit %d of %s by %s@%s (%s):\n", c.Name(), re.Commit.Sequence,
		localTime(re.Commit.Time), re.Commit.User, re.Commit.Host, foreign.OneLine(re.Commit.What))
	for _, s := range re.Stages {
		fmt.Fprintf(w, "  %s\t%s\t-> %s%s\n", s.Stage, cmp.Or(s.Now, "absent"), cmp.Or(s.Then, "absent"),
			textIf(s.Now == s.Then, " (unchanged)"))
	}
}

// noticeLine returns what prints a line about the progress of a command without a run.
func noticeLine(a *app) func(string) {
	return func(text string) { a.interrupts.say("castle: " + text) }
}
