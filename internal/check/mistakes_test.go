package check_test

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/ephemeral-castle/castle/internal/check"
)

// TestEachMistakeIsOneProblem makes mistakes of a new user in a valid repository, one fixture each. The
// second line of a fixture is how many problems castle reports, and is written by hand; the output is
// asserted to the letter. With CASTLE_UPDATE_SCRIPTS the outputs are written anew, but not the counts.
func TestEachMistakeIsOneProblem(t *testing.T) {
	mistakes(t, "testdata/mistakes", "testdata/base.txtar")
}

// TestEachMistakeInHetznerCloudIsOneProblem does the same with a cluster in Hetzner Cloud.
func TestEachMistakeInHetznerCloudIsOneProblem(t *testing.T) {
	mistakes(t, "testdata/hcloud", "testdata/hcloud.txtar")
}

func mistakes(t *testing.T, folder, base string) {
	t.Helper()
	fixtures, err := filepath.Glob(folder + "/*.txtar")
	if err != nil || len(fixtures) == 0 {
		t.Fatalf("no fixtures: %v", err)
	}
	for i, path := range fixtures {
		if i%every != 0 {
			continue
		}
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			t.Parallel()
			dir, fixture := t.TempDir(), archive(t, path)
			write(t, dir, archive(t, base), fixture)
			_, second, _ := strings.Cut(string(fixture.Comment), "\nproblems: ")
			problems, err := strconv.Atoi(strings.TrimSpace(second))
			if err != nil {
				t.Fatal(err)
			}
			report, err := check.Run(options(dir))
			if err != nil {
				t.Fatal(err)
			}
			got := withoutMessages(t, strings.ReplaceAll(printed(t, report), dir, "$REPO"))
			if len(report.Diagnostics) != problems {
				t.Errorf("%d problems; want %d", len(report.Diagnostics), problems)
			}
			compare(t, path, fixture, got)
		})
	}
}
