package values

import (
	"errors"
	"fmt"
	"maps"
	"math/big"
	"slices"

	"github.com/zclconf/go-cty/cty"
)

// ValidIDs checks the ids of virtual machines, by key.
func ValidIDs(v cty.Value) error {
	if v.LengthInt() == 0 {
		return errors.New("at least one virtual machine is needed")
	}
	seen := map[int64]string{}
	var wrong []error
	for _, key := range slices.Sorted(maps.Keys(v.AsValueMap())) {
		element := v.AsValueMap()[key]
		if element.IsNull() || !element.IsKnown() {
			continue
		}
		id, accuracy := element.AsBigFloat().Int64()
		if accuracy != big.Exact || id < 100 || id > 999999999 {
			wrong = append(wrong, fmt.Errorf("%s: %s is not a virtual machine id (a whole number from 100)",
				key, element.AsBigFloat().Text('g', -1)))
		} else if other, ok := seen[id]; ok {
			wrong = append(wrong, fmt.Errorf("%s and %s have the same id %d", other, key, id))
		}
		seen[id] = key
	}
	return errors.Join(wrong...)
}

// ValidTags checks the tags of virtual machines.
func ValidTags(v cty.Value) error {
	if v.LengthInt() == 0 {
		return errors.New("at least one tag is needed to tell castle's own virtual machines from others")
	}
	return nil
}
