package share

import (
	"context"
	"errors"
	"maps"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/state/commits"
	"github.com/ephemeral-castle/castle/internal/state/keys"
)

// PrepareRekey returns the newest commit as Rekey would accept it: of a signer in castle.hcl, of a key that
// the caller has himself, or of one that trust names. It changes nothing.
func PrepareRekey(ctx context.Context, c *cluster.Cluster, trust string) (*commits.Commit, error) {
	if c.Store != nil {
		own, err := keys.Parse(c.Store.Encryption.Identities)
		if err != nil {
			return nil, err
		}
		for _, h := range own {
			c.Store.Encryption.Trust = append(c.Store.Encryption.Trust, h.Signer)
		}
		if trust != "" {
			c.Store.Encryption.Trust = append(c.Store.Encryption.Trust, trust)
		}
	}
	log, err := logOf(c)
	if err != nil {
		return nil, err
	}
	if len(c.Store.Encryption.Recipients) == 0 {
		return nil, cluster.Usagef("castle.hcl names no recipients and signers for %s: there are no keys to "+
			"change\n  `castle state identity` prints what to add to the block encryption", log.URL())
	}
	head, err := log.Head(ctx)
	switch {
	case err != nil:
		return nil, err
	case head == nil:
		return nil, cluster.Usagef("%s has no state in %s", c.Name(), log.URL())
	case head.Moved != "":
		return nil, movedError(c, log.URL(), head)
	}
	return head, nil
}

// Rekey encrypts all contents of the newest commit for the recipients in castle.hcl, and signs them in a new
// commit, under both locks, unless the state has changed since PrepareRekey. It returns the new commit.
func Rekey(ctx context.Context, c *cluster.Cluster, seen *commits.Commit, notice func(string),
) (rekeyed *commits.Commit, err error) {
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
		if !maps.Equal(held.Head().Files, seen.Files) {
			return cluster.Usagef("%s: another run has changed the state meanwhile; nothing was done, "+
				"look again", c.Name())
		}
		err = held.Rekey(ctx)
		rekeyed = held.Head()
		return err
	})
	return rekeyed, err
}
