package doctor

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/ephemeral-castle/castle/internal/doctor/finding"
	"github.com/ephemeral-castle/castle/internal/state/commits"
	"github.com/ephemeral-castle/castle/internal/store"
)

// Store is the store in which machines share the states.
type Store struct {
	Store      store.Store
	Encryption commits.Encryption
	Err        error // why it could not be opened, or why the states could not be read from it
	Fix        func(error) string
}

// check creates, reads, lists and deletes an object, as a run does.
func (s *Store) check(ctx context.Context) []finding.Finding {
	if s.Store == nil {
		return finding.Obstacle("", "%v", s.Err)
	}
	url := s.Store.URL()
	if err := s.probe(ctx); err != nil {
		return finding.Obstacle(s.Fix(err), "%v", finding.Reason(ctx, err))
	}
	if s.Err != nil {
		return finding.Obstacle(s.Fix(s.Err), "%v", s.Err)
	}
	const works = "%s: castle can read, create, list and delete there; "
	n := len(s.Encryption.Recipients)
	if n == 0 {
		return finding.Warning("add encryption { recipients = [\"age1…\"] } to the block state of castle.hcl",
			works+"the states, which hold secrets, are not encrypted", url)
	}
	recipients := "1 recipient"
	if n > 1 {
		recipients = fmt.Sprintf("%d recipients", n)
	}
	return finding.Good(
		works+"the states are encrypted for %s, and the identity of this environment decrypts and "+
			"signs them", url, recipients)
}

// probe uses a log of its own, whose objects belong to no cluster.
func (s *Store) probe(ctx context.Context) (err error) {
	name := "castle-doctor/" + rand.Text()
	log, err := commits.Open(s.Store, name, s.Encryption)
	if err != nil {
		return err
	}
	files, err := log.Upload(ctx, [][]byte{[]byte("written by castle doctor")})
	if err != nil {
		return err
	}
	c := &commits.Commit{Files: map[string]commits.File{"probe": files[0]}}
	_, err = log.Download(ctx, c, "probe")
	keys, unlisted := s.Store.List(ctx, name+"/")
	err = errors.Join(err, unlisted)
	for _, key := range keys {
		err = errors.Join(err, s.Store.Delete(ctx, key))
	}
	return err
}
