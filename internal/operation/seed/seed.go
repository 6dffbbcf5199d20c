// Package seed writes the secrets that a cluster needs and its secret store lacks.
package seed

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/secretstore"
	"github.com/ephemeral-castle/castle/internal/secretstore/vault"
)

// Seeding compares a cluster's secrets with those in its secret store.
type Seeding struct {
	Collection *secretstore.Collection
	Missing    []string // names without a value, optional ones, too

	castle *cluster.Cluster
}

// Seeded is the result for one secret.
type Seeded struct {
	Name     string `json:"name"`
	Written  bool   `json:"written"` // now; else it was there already, or still is not
	There    bool   `json:"there"`
	Optional bool   `json:"optional"`
}

// Prepare reads which of the cluster's secrets its store lacks. It changes nothing and keeps no value.
func Prepare(ctx context.Context, c *cluster.Cluster) (*Seeding, error) {
	collection, err := secretstore.Of(c.Config.Stages)
	if err != nil {
		return nil, cluster.Usagef("%v", err)
	}
	there, err := collection.Store.Read(ctx, c.Options.Environ)
	for _, value := range there {
		c.Masker.Add(value)
	}
	if err != nil {
		return nil, c.MaskError(vaultProblem(err))
	}
	missing := slices.DeleteFunc(slices.Clone(collection.Names),
		func(name string) bool { return there[name] != "" })
	return &Seeding{Collection: collection, Missing: missing, castle: c}, nil
}

// Check reports all problems with the secrets to add: names that no stage reads, and those that are missing.
func (s *Seeding) Check(secrets map[string]string) error {
	var wrong []string
	for name, value := range secrets {
		switch {
		case !slices.Contains(s.Collection.Names, name):
			wrong = append(wrong, fmt.Sprintf("%s: stage %s reads no such secret; it reads %s",
				name, s.Collection.Stage, strings.Join(s.Collection.Names, ", ")))
		case value == "":
			wrong = append(wrong, name+": it is empty")
		}
	}
	slices.Sort(wrong)
	for _, name := range s.Missing {
		if _, given := secrets[name]; !given && !s.Collection.Optional[name] {
			wrong = append(wrong, name+": it is missing there, and not given")
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	return cluster.Usagef("nothing was written to %s\n  %s", s.Collection.Where, strings.Join(wrong, "\n  "))
}

// Write adds the missing ones of the secrets. It never changes an existing secret.
func (s *Seeding) Write(ctx context.Context, secrets map[string]string) ([]Seeded, error) {
	for _, value := range secrets {
		s.castle.Masker.Add(value)
	}
	missing := map[string]string{}
	for _, name := range s.Missing {
		if value := secrets[name]; value != "" {
			missing[name] = value
		}
	}
	var kept []string
	if len(missing) > 0 {
		var err error
		if kept, err = s.Collection.Store.Add(ctx, s.castle.Options.Environ, missing); err != nil {
			return nil, s.castle.MaskError(vaultProblem(err))
		}
	}
	var all []Seeded
	for _, name := range s.Collection.Names {
		_, given := missing[name]
		there := !slices.Contains(s.Missing, name) || slices.Contains(kept, name)
		all = append(all, Seeded{
			Name: name, Written: given && !there, There: there || given,
			Optional: s.Collection.Optional[name],
		})
	}
	return all, nil
}

// vaultProblem adds Vault's fixes to an error, as a preflight prints them.
func vaultProblem(err error) error {
	t := (*vault.Problem)(nil)
	if !errors.As(err, &t) {
		return err
	}
	text := fmt.Sprintf("%s: %s", t.Object, t.Reason)
	for _, fix := range t.Fixes {
		text += "\n  - " + fix
	}
	return errors.New(text)
}
