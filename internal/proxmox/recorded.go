package proxmox

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// Recorded reads from the values of a preflight vm_ids how its datacenter is
// reached and which ids it was asked about, in ascending order.
func Recorded(v gate.Values) (Options, []int, error) {
	ids := map[string]int{}
	if err := v.Decode("vm_ids", &ids); err != nil {
		return Options{}, nil, err
	}
	return Options{
		Endpoint: v.String("endpoint"), Token: v.String("api_token"), CA: v.String("ca_file"), Insecure: v.Bool("insecure"),
	}, slices.Sorted(maps.Values(ids)), nil
}

// PreflightVMIDs is the name of the preflight that Recorded reads.
const PreflightVMIDs = "vm_ids"

// GuestID returns the id of the guest that a resource in a state stands for, and
// whether it stands for one at all. A guest whose id the state lacks is 0.
func GuestID(kind string, attributes map[string]any) (id int, isGuest bool) {
	if !strings.HasPrefix(kind, "proxmox_") {
		return 0, false
	}
	id = attributeInt(attributes["vm_id"])
	return id, id != 0 || strings.HasSuffix(kind, "_vm") || strings.HasSuffix(kind, "_container")
}

// SameEndpoint reports whether two addresses are those of the same API.
func SameEndpoint(a, b string) bool {
	first, err := parseEndpoint(a)
	if err != nil {
		return false
	}
	second, err := parseEndpoint(b)
	return err == nil && strings.EqualFold(first.Host, second.Host)
}

// CheckToken says what is wrong with the form of an API token, without repeating it.
func CheckToken(token string) error {
	if !tokenForm.MatchString(token) {
		return errors.New(`the API token does not look like "user@realm!name=secret"`)
	}
	return nil
}
