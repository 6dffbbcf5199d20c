package store_test

import (
	"errors"
	"io/fs"
	"maps"
	"slices"
	"testing"

	"github.com/ephemeral-castle/castle/internal/store"
)

func TestAPartOfAStoreHasItsOwnKeysAlone(t *testing.T) {
	whole, err := store.Open(t.Context(), "file://"+t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	part := store.Within(whole, "part")
	err = errors.Join(whole.Create(t.Context(), "a/1", []byte("one")),
		part.Create(t.Context(), "a/1", []byte("three")), part.Create(t.Context(), "a/2", nil))
	if err != nil {
		t.Fatal(err)
	}
	keys, err := part.List(t.Context(), "a/")
	sizes, err2 := part.Sizes(t.Context(), "")
	value, err3 := part.Read(t.Context(), "a/1")
	all, err4 := whole.List(t.Context(), "part/")
	if err := errors.Join(err, err2, err3, err4); err != nil || !slices.Equal(keys, []string{"a/1", "a/2"}) ||
		!maps.Equal(sizes, map[string]int64{"a/1": 5, "a/2": 0}) || string(value) != "three" ||
		!slices.Equal(all, []string{"part/a/1", "part/a/2"}) {
		t.Error(err, keys, sizes, string(value), all)
	}
	if err := part.Delete(t.Context(), "a/1"); err != nil {
		t.Fatal(err)
	}
	_, err = part.Read(t.Context(), "a/1")
	if value, kept := whole.Read(t.Context(), "a/1"); !errors.Is(err, fs.ErrNotExist) || kept != nil ||
		string(value) != "one" {
		t.Error(err, kept, string(value))
	}
}
