package rehearsal

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ephemeral-castle/castle/lab/internal/datacenter"
	"github.com/ephemeral-castle/castle/lab/internal/operators/upstream"
	"github.com/ephemeral-castle/castle/lab/internal/sources"
)

// The values of Options.Controllers; empty is real where `make real` has built them.
const (
	realControllers    = "real"
	standInControllers = "standin"
)

// ParseControllers reads --controllers.
func ParseControllers(text string) error {
	if text != "" && text != realControllers && text != standInControllers {
		return fmt.Errorf("--controllers %q: must be real or standin", text)
	}
	return nil
}

// controllers finds the real controllers beside castle-lab in bin, or decides for the doubles.
func (p *plan) controllers(bin string) error {
	folder := filepath.Join(bin, upstream.Folder)
	built := upstream.Built(folder)
	switch {
	case p.Options.Controllers == standInControllers:
	case p.Options.Controllers == realControllers && p.Faults.Frozen:
		return &UsageError{errors.New("--controllers real: the fault kustomization-frozen needs standin, " +
			"as the lab cannot make Flux's real controllers miss an event")}
	case p.Options.Controllers == realControllers && !built:
		return fmt.Errorf("%s is missing or not complete\ncastle: hint: run `make real` in a clone of "+
			"castle and put bin/%s beside castle-lab; --controllers standin rehearses with doubles", folder,
			upstream.Folder)
	case built && !p.Faults.Frozen:
		p.Controllers = folder
	}
	return nil
}

// follow makes the folder that Flux follows: the branch's commit of a clone, and an invented repository for a
// cluster without a clone.
func (p *plan) follow(ctx context.Context, notice func(string)) error {
	s, to := &p.Survey, p.path("fleet")
	if s.Repository == "" {
		s.Repository = to
		return sources.Invent(to, s.Path, s.SourceKind)
	}
	if _, err := os.Stat(filepath.Join(s.Repository, ".git")); err != nil || len(s.Branches) == 0 ||
		s.SourceKind != "GitRepository" {
		return nil // a plain folder, and an artifact, which is pushed from one
	}
	commit, changed, err := sources.Checkout(ctx, s.Repository, s.Branches[0], to)
	if err != nil {
		return &UsageError{fmt.Errorf("gitops: %w", err)}
	}
	if changed {
		notice(fmt.Sprintf("Flux follows commit %.7s of branch %s; %s has changes that are not in it", commit,
			s.Branches[0], s.Repository))
	}
	// A repository that holds the configuration, too, is edited where it is.
	if _, above := within(s.Repository, p.Repository); !above {
		p.Fleet = s.Repository
	}
	s.Repository = to
	return nil
}

// played tells in the last line of a rehearsal whose controllers ran. A real one that ran has left a log.
func (p *plan) played() string {
	if p.Controllers == "" {
		return "all controllers were the lab's doubles"
	}
	var all []string
	releases := upstream.Releases()
	for _, name := range slices.Sorted(maps.Keys(releases)) {
		if _, err := os.Stat(p.path(datacenter.ControllerLogs, name+".log")); err == nil {
			all = append(all, name+" "+releases[name])
		}
	}
	if len(all) == 0 {
		return "no real controller ran, and all operators were doubles"
	}
	return "real: " + strings.Join(all, ", ") + "; the other operators were doubles"
}
