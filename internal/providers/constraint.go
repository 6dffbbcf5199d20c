package providers

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/go-version"
)

// Allows reports whether constraints of Terraform's form ("~> 3.1, != 3.1.4") allow a version. No constraints
// allow any.
func Allows(constraints, chosen string) (bool, error) {
	if strings.TrimSpace(constraints) == "" {
		return true, nil
	}
	c, err := version.NewConstraint(constraints)
	if err != nil {
		return false, fmt.Errorf("version constraint %q: %w", constraints, err)
	}
	v, err := version.NewVersion(chosen)
	if err != nil {
		return false, err
	}
	return c.Check(v), nil
}

// Compatible reports whether some version satisfies all constraints. Each constraint is a range that ends at
// the version that it names, so it is enough to try those versions and their neighbours.
func Compatible(constraints ...string) (bool, error) {
	joined := Join(constraints...)
	if joined == "" {
		return true, nil
	}
	all, err := version.NewConstraint(joined)
	if err != nil {
		return false, fmt.Errorf("version constraint %q: %w", joined, err)
	}
	for _, c := range all {
		named, err := version.NewVersion(strings.TrimLeft(c.String(), "=!<>~ "))
		if err != nil {
			return false, err
		}
		for _, v := range neighbours(named) {
			if all.Check(v) {
				return true, nil
			}
		}
	}
	return false, nil
}

const last = 1 << 30 // beyond any minor version or patch

func neighbours(v *version.Version) []*version.Version {
	s := v.Segments()
	major, minor, patch := s[0], s[1], s[2]
	all := []*version.Version{v}
	for _, n := range [][3]int{
		{major, minor, patch + 1}, {major, minor, patch - 1}, {major, minor, last}, {major, minor + 1, 0},
		{major, minor - 1, last}, {major, last, last}, {major + 1, 0, 0}, {major - 1, last, last},
	} {
		if n[0] >= 0 && n[1] >= 0 && n[2] >= 0 {
			all = append(all, version.Must(version.NewVersion(fmt.Sprintf("%d.%d.%d", n[0], n[1], n[2]))))
		}
	}
	return all
}

// Join returns the constraints as one: each once, sorted.
func Join(constraints ...string) string {
	var all []string
	for _, c := range constraints {
		for one := range strings.SplitSeq(c, ",") {
			if one = strings.TrimSpace(one); one != "" {
				all = append(all, one)
			}
		}
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), ", ")
}
