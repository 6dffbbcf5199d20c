package store

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ephemeral-castle/castle/internal/store/storetest"
)

func TestFolderConforms(t *testing.T) { conforms(t, storetest.Folder(t)) }

// conforms checks what every store promises.
func conforms(t *testing.T, server *storetest.Server) {
	s := opened(t, server.URL)
	t.Run("Basics", func(t *testing.T) { basics(t, s) })
	t.Run("Keys", func(t *testing.T) { oddKeys(t, s) })
	t.Run("OneWriterWins", func(t *testing.T) { oneWriterWins(t, server) })
	t.Run("NoHalfValue", func(t *testing.T) { noHalfValue(t, server) })
	t.Run("List", func(t *testing.T) { listsAll(t, s) })
}

func opened(t *testing.T, url string) *retried {
	t.Helper()
	s, err := Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s.(*retried)
}

func basics(t *testing.T, s Store) {
	ctx := t.Context()
	if keys, err := s.List(ctx, ""); err != nil || len(keys) != 0 {
		t.Errorf("an empty store lists %v, %v", keys, err)
	}
	if err := s.Delete(ctx, "basics/none"); err != nil {
		t.Errorf("delete a key that does not exist: %v", err)
	}
	if _, err := s.Read(ctx, "basics/none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("read a key that does not exist: %v", err)
	}
	for name, value := range map[string][]byte{"empty": {}, "nil": nil, "text": []byte("hello"),
		"binary": {0, 255, 10, 13, 0, 128}, "large": bytes.Repeat([]byte("castle\x00"), 3<<20)} {
		key := "basics/" + name
		if err := s.Create(ctx, key, value); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got, err := s.Read(ctx, key); err != nil || !bytes.Equal(got, value) {
			t.Errorf("%s: read %d bytes, %v; want %d", name, len(got), err, len(value))
		}
		if err := s.Create(ctx, key, []byte("other")); !errors.Is(err, fs.ErrExist) {
			t.Errorf("%s: created twice: %v", name, err)
		}
		if got, err := s.Read(ctx, key); err != nil || !bytes.Equal(got, value) {
			t.Errorf("%s: the second create changed the value, %v", name, err)
		}
		if err := s.Delete(ctx, key); err != nil {
			t.Errorf("%s: delete: %v", name, err)
		}
		if _, err := s.Read(ctx, key); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: read after delete: %v", name, err)
		}
		if err := s.Create(ctx, key, []byte("again")); err != nil {
			t.Errorf("%s: create after delete: %v", name, err)
		}
	}
	stopped := errors.New("stopped")
	ended, cancel := context.WithCancelCause(ctx)
	cancel(stopped)
	if _, err := s.Read(ended, "basics/text"); !errors.Is(err, stopped) {
		t.Errorf("read with a cancelled context: %v", err)
	}
}

func oddKeys(t *testing.T, s Store) {
	ctx := t.Context()
	odd := []string{"odd/_", "odd/-", "odd/--flag", "odd/a..b", "odd/a.", "odd/0", "odd/K", "odd/k",
		"odd/a-b", "odd/a/b", "odd/a.b/c", "odd/A_b-c.d/9", "odd/x__y", "odd/" + strings.Repeat("n", 200)}
	slices.Sort(odd)
	for _, key := range odd {
		if err := s.Create(ctx, key, []byte(key)); err != nil {
			t.Fatal(err)
		}
	}
	if keys, err := s.List(ctx, "odd/"); err != nil || !slices.Equal(keys, odd) {
		t.Errorf("listed %q, %v; want %q", keys, err, odd)
	}
	if keys, err := s.List(ctx, "odd/a"); err != nil || len(keys) != 5 {
		t.Errorf("with the prefix odd/a: %q, %v", keys, err)
	}
	for _, key := range odd {
		if value, err := s.Read(ctx, key); err != nil || string(value) != key {
			t.Errorf("%s: read %q, %v", key, value, err)
		}
	}
	var failed *Error
	for _, key := range []string{"", "/a", "a/", "a//b", "..", "../a", "a/../b", ".a", "a/.b", "a b", "ä",
		"a\n", `a\b`, "a?b", "a%2fb", "a*"} {
		if err := s.Create(ctx, key, nil); !errors.As(err, &failed) || failed.Kind != Failed {
			t.Errorf("created %q: %v", key, err)
		}
		if _, err := s.Read(ctx, key); !errors.As(err, &failed) {
			t.Errorf("read %q: %v", key, err)
		}
	}
}

// oneWriterWins lets 8 writers, each with its own connections, create the same key at once, 500 times.
func oneWriterWins(t *testing.T, server *storetest.Server) {
	const writers, rounds = 8, 500
	var stores [writers]Store
	for i := range stores {
		stores[i] = opened(t, server.URL)
	}
	for round := range rounds {
		key := fmt.Sprintf("race/%03d", round)
		var errs [writers]error
		var ready, all sync.WaitGroup
		ready.Add(writers)
		for i, s := range stores {
			all.Go(func() {
				ready.Done()
				ready.Wait()
				errs[i] = s.Create(t.Context(), key, fmt.Appendf(nil, "writer %d", i))
			})
		}
		all.Wait()
		winner := -1
		for i, err := range errs {
			switch {
			case err == nil && winner < 0:
				winner = i
			case err == nil:
				t.Fatalf("%s: both %d and %d won", key, winner, i)
			case !errors.Is(err, fs.ErrExist):
				t.Fatal(err)
			}
		}
		if winner < 0 {
			t.Fatalf("%s: nobody won", key)
		}
		value, err := stores[round%writers].Read(t.Context(), key)
		if want := fmt.Sprintf("writer %d", winner); err != nil || string(value) != want {
			t.Fatalf("%s: read %q, %v; want %q", key, value, err, want)
		}
	}
}

// large returns a value that begins with its own hash.
func large(size int) []byte {
	value := make([]byte, size)
	rand.Read(value) //nolint:errcheck // it never fails
	sum := sha256.Sum256(value[sha256.Size:])
	copy(value, sum[:])
	return value
}

func whole(value []byte, size int) bool {
	return len(value) == size && sha256.Sum256(value[sha256.Size:]) == [sha256.Size]byte(value[:sha256.Size])
}

// noHalfValue reads a key all the time while a large value is written to it, and writers are cancelled.
func noHalfValue(t *testing.T, server *storetest.Server) {
	const size, values = 4 << 20, 12
	reader, writer := opened(t, server.URL), opened(t, server.URL)
	key := func(i int) string { return fmt.Sprintf("half/%02d", i) }
	var current atomic.Int64
	var reading sync.WaitGroup
	for range 2 {
		reading.Go(func() {
			for {
				i := int(current.Load())
				if i == values {
					return
				}
				value, err := reader.Read(t.Context(), key(i))
				if err == nil && !whole(value, size) {
					t.Errorf("%s: read %d bytes of a value", key(i), len(value))
					return
				} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
					t.Error(err)
					return
				}
			}
		})
	}
	for i := range values {
		current.Store(int64(i))
		ctx, cancel := context.WithCancel(t.Context())
		if i%2 == 1 {
			time.AfterFunc(time.Duration(i)*time.Millisecond, cancel)
		}
		err := writer.Create(ctx, key(i), large(size))
		if err != nil && (i%2 == 0 || !errors.Is(err, context.Canceled)) {
			t.Error(err)
		}
		cancel()
	}
	current.Store(values)
	reading.Wait()
}

func listsAll(t *testing.T, s Store) {
	var all []string
	var creating sync.WaitGroup
	for writer := range 10 {
		for i := range 300 {
			all = append(all, fmt.Sprintf("many/%03d/%d", i, writer))
		}
		mine := all[len(all)-300:]
		creating.Go(func() {
			for _, key := range mine {
				if err := s.Create(t.Context(), key, []byte(key)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	creating.Wait()
	slices.Sort(all)
	if keys, err := s.List(t.Context(), "many/"); err != nil || !slices.Equal(keys, all) {
		t.Errorf("listed %d keys, %v; want %d in their order", len(keys), err, len(all))
	}
	if keys, err := s.List(t.Context(), "many/012"); err != nil || !slices.Equal(keys, all[120:130]) {
		t.Errorf("listed %q, %v; want %q", keys, err, all[120:130])
	}
	if keys, err := s.List(t.Context(), "man"); err != nil || len(keys) != len(all) {
		t.Errorf("listed %d keys with half a name, %v", len(keys), err)
	}
	if keys, err := s.List(t.Context(), "none/"); err != nil || len(keys) != 0 {
		t.Errorf("listed %q, %v", keys, err)
	}
	sizes, err := s.Sizes(t.Context(), "many/012")
	if err != nil || len(sizes) != 10 || sizes[all[120]] != int64(len(all[120])) {
		t.Errorf("sizes %v, %v", sizes, err)
	}
}
