package kubernetes

import (
	"maps"
	"slices"
)

// Stored are the built-in kinds whose changes are followed.
func Stored() []string { return slices.Sorted(maps.Keys(stored)) }
