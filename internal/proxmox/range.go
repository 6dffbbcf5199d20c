package proxmox

import (
	"fmt"
	"strconv"
	"strings"
)

// Range is a span of guest ids, both ends included.
type Range struct{ From, To int }

// widest is how many ids a range may have: who means more has mistyped one.
const widest = 64

// ParseRange reads "421-432", or "421" for one id.
func ParseRange(text string) (Range, error) {
	from, to, isSpan := strings.Cut(text, "-")
	if !isSpan {
		to = from
	}
	r := Range{}
	var err error
	if r.From, err = strconv.Atoi(from); err == nil {
		r.To, err = strconv.Atoi(to)
	}
	switch {
	case err != nil:
		return Range{}, fmt.Errorf("%q is no range of VM ids such as 421-432", text)
	case r.From < 100 || r.To > 999999999:
		return Range{}, fmt.Errorf("range %s: VM ids go from 100 to 999999999", text)
	case r.From > r.To:
		return Range{}, fmt.Errorf("range %s ends before it begins", text)
	case r.To-r.From >= widest:
		return Range{}, fmt.Errorf("range %s has %d ids; more than %d at once are refused", text, r.To-r.From+1, widest)
	}
	return r, nil
}

// Contains reports whether an id lies in the range.
func (r Range) Contains(id int) bool { return r.From <= id && id <= r.To }

func (r Range) String() string {
	if r.From == r.To {
		return strconv.Itoa(r.From)
	}
	return fmt.Sprintf("%d-%d", r.From, r.To)
}
