package doctor

import (
	"context"
	"fmt"

	"github.com/ephemeral-castle/castle/internal/state"
)

func (m Machine) questions() []question {
	return []question{{"terraform", m.terraform}, {"state", m.state}}
}

// terraform looks for the Terraform that a run would use. None is downloaded.
func (m Machine) terraform(ctx context.Context) []Finding {
	found, err := m.Terraform(ctx)
	switch {
	case err != nil:
		return red("", "%v", cause(ctx, err))
	case found.Path == "":
		refused := ""
		for _, why := range found.Refused {
			refused += "; " + why
		}
		return yellow(fmt.Sprintf("install Terraform %s or newer; otherwise the first run downloads %s from releases.hashicorp.com", found.Oldest, found.Pinned),
			"no Terraform %s or newer on PATH%s", found.Oldest, refused)
	}
	return green("%s, %s", found.Version, found.Path)
}

// Below the first, a run may end in the middle of a write; below the second it
// may soon: providers take some hundred megabytes, and every apply a snapshot.
const (
	scarce = 200 << 20
	little = 1 << 30
)

// state looks at the folder that holds every secret and every state.
func (m Machine) state(context.Context) []Finding {
	disk, err := state.CheckDisk(m.StateRoot)
	if err != nil {
		return red("make it readable, or choose another with --state-dir", "%v", err)
	}
	var found []Finding
	for _, open := range disk.Exposed {
		found = append(found, red("chmod 700 "+open.Path, "%s has mode %04o and must be 0700: it holds every secret of a cluster", open.Path, open.Mode)...)
	}
	free := fmt.Sprintf("%.1f GB free", float64(disk.Free)/1e9)
	switch {
	case !disk.Writable:
		found = append(found, red("make "+disk.Nearest+" writable, or choose another place with --state-dir", "%s cannot be written", disk.Nearest)...)
	case disk.Free < scarce:
		found = append(found, red("make room, or choose another place with --state-dir", "%s: only %s", m.StateRoot, free)...)
	case disk.Free < little:
		found = append(found, yellow("make room, or choose another place with --state-dir", "%s: only %s", m.StateRoot, free)...)
	}
	if len(found) > 0 {
		return found
	}
	if disk.Nearest != m.StateRoot {
		return green("%s, not made yet, %s", m.StateRoot, free)
	}
	return green("%s, for its owner alone, %s", m.StateRoot, free)
}

func (m Machine) lab(context.Context) []Finding {
	if m.Lab == "" {
		return yellow("run `make build` in a clone of castle, which builds it beside castle into bin/", "not beside castle and not on PATH: nothing can be rehearsed")
	}
	return green("%s", m.Lab)
}
