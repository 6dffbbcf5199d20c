package revision

import (
	"context"
	"errors"
	"slices"
	"testing"
)

func TestCompareNamesWhatIsAbsentChangedOrNew(t *testing.T) {
	object := func(name, revision string) Object {
		return Object{System: "kubernetes", Kind: "Secret", Name: name, Revision: revision}
	}
	was := []Object{object("same", "a/1"), object("gone", "b/1"), object("left", "c/1"),
		object("made", "d/1"), object("never", "")}
	now := []Object{object("same", "a/1"), object("left", "c/2"), object("made", ""), object("more", "e/1"),
		object("never", "")}
	var texts []string
	for _, d := range Compare(was, now) {
		texts = append(texts, d.String())
	}
	want := []string{"Secret gone is absent", "Secret made is absent", "Secret never is absent",
		"Secret left has changed", "Secret more is new"}
	if !slices.Equal(texts, want) {
		t.Errorf("got %q, want %q", texts, want)
	}
	if found := Compare(now[:2], now[:2]); len(found) > 0 {
		t.Errorf("equal objects differ: %v", found)
	}
}

func TestEachSystemReadsItsOwnObjects(t *testing.T) {
	refused := errors.New("refused")
	system := func(name string, err error) System {
		return System{Name: name, Read: func(_ context.Context, _ Stage, known []Object) ([]Object, error) {
			for _, o := range known {
				if o.System != name {
					t.Errorf("%s was asked for %v", name, o)
				}
			}
			return []Object{{System: name, Name: "read"}}, err
		}}
	}
	systems := []System{system("a", nil), system("b", refused), system("c", nil)}
	found, err := Read(t.Context(), systems, Stage{}, nil)
	if len(found) != 3 || !errors.Is(err, refused) {
		t.Errorf("after an apply: %v, %v", found, err)
	}
	found, err = Read(t.Context(), systems, Stage{}, []Object{{System: "c", Name: "known"}})
	if len(found) != 1 || found[0].System != "c" || err != nil {
		t.Errorf("a system that holds nothing of the stage was asked: %v, %v", found, err)
	}
}
