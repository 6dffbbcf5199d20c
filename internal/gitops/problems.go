package gitops

import (
	"cmp"
	"errors"
	"slices"
	"strings"
)

// Problem is one thing that Flux could not do, and where it is written.
type Problem struct {
	Place
	Message string
}

func (p Problem) Error() string {
	if p.File == "" {
		return p.Message
	}
	return p.Place.String() + ": " + p.Message
}

// Problems is everything that is wrong with a repository, by file and line.
type Problems []Problem

func (p Problems) Error() string {
	var all []string
	for _, one := range p {
		all = append(all, one.Error())
	}
	return strings.Join(all, "\n")
}

// add takes an error in, which may be Problems with places of their own.
func (p *Problems) add(at Place, err error) {
	var several Problems
	switch {
	case err == nil:
	case errors.As(err, &several):
		for _, one := range several {
			if one.File == "" {
				one.Place = at
			}
			*p = append(*p, one)
		}
	default:
		*p = append(*p, Problem{at, err.Error()})
	}
}

// err is nil without problems, and has each once: two Kustomizations may read one file.
func (p Problems) err() error {
	if len(p) == 0 {
		return nil
	}
	slices.SortStableFunc(p, func(a, b Problem) int { return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line)) })
	return slices.Compact(p)
}
