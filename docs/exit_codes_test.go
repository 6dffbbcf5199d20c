package docs_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ephemeral-castle/castle/internal/cli"
)

// TestExitCodesHaveASection checks that docs/exit-codes.md has a section for each exit code of castle, and no
// other one.
func TestExitCodesHaveASection(t *testing.T) {
	var codes, sections []string
	for _, e := range cli.ExitCodes() {
		codes = append(codes, strconv.Itoa(e.Code))
	}
	for line := range strings.Lines(read(t, "exit-codes.md")) {
		if heading, is := strings.CutPrefix(line, "## "); is {
			code, _, _ := strings.Cut(heading, ":")
			sections = append(sections, code)
		}
	}
	if len(codes) == 0 || !slices.Equal(codes, sections) {
		t.Errorf("sections: %v, want one for each of castle's exit codes: %v", sections, codes)
	}
}
