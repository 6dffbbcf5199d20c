// Package bucket keeps castle's own documents about data that outlive a cluster: of the saves, and of the
// births that save. They are where the data is, so that a machine without a state finds them. A document is
// written last of all, and never changed. Whoever can write to the bucket might lead castle away by one, so
// that each type of data checks what its documents name.
package bucket

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/store"
	"github.com/ephemeral-castle/castle/internal/survivor"
)

// Required is an argument of a survives block: a text that is not empty.
func Required(help string) gate.Attribute {
	return gate.Attribute{Type: cty.String, Required: true, Help: help, Valid: notEmpty}
}

func notEmpty(v cty.Value) error {
	if v.AsString() == "" {
		return errors.New("it is empty")
	}
	return nil
}

// Paths matches a path in a bucket.
var Paths = regexp.MustCompile(`^(/[A-Za-z0-9_-][A-Za-z0-9._-]*)+$`)

func validPath(v cty.Value) error {
	if !Paths.MatchString(v.AsString()) {
		return fmt.Errorf("%q is no path such as \"/data\": the first slash is required, and there is no "+
			"last one", v.AsString())
	}
	return nil
}

// Attributes are the arguments by which every type of data names its bucket and the age of its saves.
func Attributes(folder string) map[string]gate.Attribute {
	path := Required(folder)
	path.Valid = validPath
	return map[string]gate.Attribute{
		"rpo": {Type: cty.String, Valid: gate.ValidDuration,
			Help: "how old the last save may be, such as \"24h\": beyond that, castle status is not ready"},
		"endpoint":   Required("host or host:port of the S3 server, which has TLS"),
		"region":     Required("the region of the bucket"),
		"bucket":     Required("the bucket"),
		"path":       path,
		"access_key": Required("the id of the account's key, an output of the secrets layer"),
		"secret_key": Required("the key itself"),
		"ca_file": {Type: cty.String,
			Help: "a file with the certificates to trust; without it, those of the system"},
	}
}

// Documents are those of one survives block.
type Documents struct {
	Open func() (store.Store, error)
	// Folder is where in the store they are: a path.
	Folder string
	// Valid refuses a save that castle has not written so.
	Valid func(survivor.Save) error
}

// New returns the documents in the bucket that a block with Attributes names.
func New(name string, v gate.Values, folder string, valid func(survivor.Save) error) (*Documents, error) {
	b := store.Bucket{Endpoint: v.String("endpoint"), Region: v.String("region"), Name: v.String("bucket"),
		AccessKey: v.String("access_key"), SecretKey: v.String("secret_key")}
	if file := v.String("ca_file"); file != "" {
		var err error
		if b.Authorities, err = os.ReadFile(file); err != nil {
			return nil, fmt.Errorf("%s: ca_file: %w", name, err)
		}
	}
	open := func() (store.Store, error) { return store.OpenBucket(b) }
	return &Documents{Open: open, Folder: folder, Valid: valid}, nil
}

// Within opens the store for one task.
func (d *Documents) Within(do func(store.Store) error) error {
	in, err := d.Open()
	if err != nil {
		return err
	}
	return errors.Join(do(in), in.Close())
}

// Key is the key of a path, such as /database/1/backup.
func Key(parts ...string) string { return strings.TrimPrefix(strings.Join(parts, "/"), "/") }

// The folders of documents, and of how many saves castle keeps them: each is read at every look.
const (
	saves     = "saves/"
	births    = "births/"
	keptSaves = 20
)

// Saves reads the documents of the newest saves, the oldest first. An unreadable one is an error.
func (d *Documents) Saves(ctx context.Context, in store.Store) ([]survivor.Save, error) {
	return read(ctx, in, Key(d.Folder, saves), keptSaves, func(name string, s survivor.Save) error {
		if path.Base(name) != s.ID+".json" {
			return errors.New("its id is not its name")
		}
		return d.Valid(s)
	})
}

// Births reads the documents of the newest births, the oldest first.
func (d *Documents) Births(ctx context.Context, in store.Store, most int,
	valid func(survivor.Birth) error) ([]survivor.Birth, error) {
	return read(ctx, in, Key(d.Folder, births), most,
		func(_ string, b survivor.Birth) error { return valid(b) })
}

// read reads the last of the documents in a folder, whose names begin with a time.
func read[T any](ctx context.Context, in store.Store, folder string, most int,
	valid func(string, T) error) (all []T, err error) {
	names, err := in.List(ctx, folder)
	if err != nil {
		return nil, err
	}
	for _, name := range names[max(0, len(names)-most):] {
		v, err := document[T](ctx, in, name)
		if err == nil {
			err = valid(name, v)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, v)
	}
	return all, nil
}

func document[T any](ctx context.Context, in store.Store, name string) (v T, err error) {
	text, err := in.Read(ctx, name)
	if err == nil {
		err = json.Unmarshal(text, &v)
	}
	return v, err
}

// Announce writes the document of a birth.
func (d *Documents) Announce(ctx context.Context, b survivor.Birth) error {
	return d.create(ctx, births+b.ID, b)
}

// Write writes the document of a save: from now on it counts.
func (d *Documents) Write(ctx context.Context, s *survivor.Save) error {
	return d.create(ctx, saves+s.ID, s)
}

func (d *Documents) create(ctx context.Context, name string, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return d.Within(func(in store.Store) error {
		err := in.Create(ctx, Key(d.Folder, name+".json"), text)
		if errors.Is(err, fs.ErrExist) { // an earlier attempt's, whose answer was lost
			return nil
		}
		return err
	})
}

// Prune deletes the documents of saves beyond the newest. The data stay.
func (d *Documents) Prune(ctx context.Context) error {
	return d.Within(func(in store.Store) error {
		names, err := in.List(ctx, Key(d.Folder, saves))
		if err != nil {
			return err
		}
		for _, name := range names[:max(0, len(names)-keptSaves)] {
			err = errors.Join(err, in.Delete(ctx, name))
		}
		return err
	})
}
