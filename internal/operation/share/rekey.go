package share

import (
	"context"
	"errors"
	"maps"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/state/commits"
)

// Rekey encrypts all contents of the newest commit for the recipients in castle.hcl, and signs them in a new
// commit, under both locks. The newest commit has to be of a signer in castle.hcl, of a key that the caller
// has himself, or of one that trust names; confirm shows it to the user. It returns the new commit.
func Rekey(ctx context.Context, c *cluster.Cluster, trust string, confirm func(*commits.Commit) error,
	notice func(string)) (rekeyed *commits.Commit, err error) {
	if c.Store != nil {
		c.Store.Encryption.Trust = []string{trust}
	}
	log, err := logOf(c)
	if err != nil {
		return nil, err
	}
	head, err := log.Head(ctx)
	switch {
	case err != nil:
		return nil, err
	case head == nil, len(c.Store.Encryption.Recipients) == 0:
		return nil, cluster.Usagef("%s has no state in %s, or castle.hcl no recipients and signers for it",
			c.Name(), log.URL())
	}
	if err := confirm(head); err != nil {
		return nil, err
	}
	err = locked(ctx, c, "rekey", notice, func(run string) (err error) {
		working, err := c.Store.Open(c.Dir)
		if err != nil {
			return err
		}
		held, err := working.Take(ctx, run, notice)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, release(ctx, c, held, "the end of the rekey")) }()
		if !maps.Equal(held.Head().Files, head.Files) {
			return cluster.Usagef("%s: another run has changed the state meanwhile: look again", c.Name())
		}
		err = held.Restore(ctx, held.Head(), "encrypted and signed anew")
		rekeyed = held.Head()
		return err
	})
	return rekeyed, err
}
