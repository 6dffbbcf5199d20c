package proxmox

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// castleTag is on every virtual machine that castle's platform stages make,
// beside the name of the cluster; castlePool is the pool that may stand in for
// the machine's name.
const (
	castleTag  = "castle"
	castlePool = "castle"
)

// Claim says which guests of a range count as castle's own.
//
// An id alone proves nothing: ids are used again, and the next machine on one
// may be anybody's. Three things have to agree: the range, castle's tag, and
// either a name that begins with the tag of a cluster or the pool "castle".
type Claim struct {
	Range   Range
	Cluster string // only this cluster's machines; those of any, if empty
	Foreign []int  // ids whose ownership the user vouches for
	// Known says what the states of clusters know of the machines with some ids.
	Known map[int]Known
}

// Known is a machine as the state of a cluster knows it.
type Known struct {
	Cluster string // blue/proxmox
	Machine Trace
}

// Subject is a guest with everything that a judgement of it rests on.
type Subject struct {
	Guest              // of one that the token may not see only the id
	Hidden      bool   // exists, but the token may not see it
	Unreadable  string // why nothing but the list's line could be read
	Config      Config
	HA          bool // managed by the high-availability stack
	Replication bool // a replication job copies it
}

// Judge says why a guest must not be deleted; nothing, if it may be. Ownership
// comes first and is all that Claim.Foreign speaks to: whatever else is said
// against a guest, somebody has to change in Proxmox.
func (c Claim) Judge(s Subject) []string {
	switch {
	case !c.Range.Contains(s.ID):
		return []string{"outside the range " + c.Range.String()}
	case s.Hidden:
		return []string{"exists, but this API token may not see it (VM.Audit)"}
	case s.Kind != "qemu":
		return []string{"a container (" + s.Kind + "), not a virtual machine"}
	case s.Unreadable != "":
		return []string{s.Unreadable}
	}
	var why []string
	if stranger := c.stranger(s); stranger != "" && !slices.Contains(c.Foreign, s.ID) {
		why = append(why, stranger)
	}
	if on(s.Config["protection"]) {
		why = append(why, "protected")
	}
	if on(s.Config["template"]) {
		why = append(why, "a template")
	}
	if lock := s.Config["lock"]; lock != "" {
		why = append(why, "locked ("+lock+")")
	}
	if s.HA {
		why = append(why, "managed by high availability")
	}
	if s.Replication {
		why = append(why, "replicated")
	}
	if volume := linked(s.Config); volume != "" {
		why = append(why, "part of a linked clone ("+volume+")")
	}
	return why
}

// stranger says what is missing for the guest to be castle's own.
func (c Claim) stranger(s Subject) string {
	if known, ok := c.Known[s.ID]; ok {
		same, proved := known.Machine.is(guest{macs: s.Config.MACs(), uuid: s.Config.UUID()})
		if proved && !same {
			return fmt.Sprintf("the state of %s knows this id as another machine", known.Cluster)
		}
	}
	tags, want := s.Config.Tags(), []string{castleTag}
	if c.Cluster != "" {
		want = append(want, c.Cluster)
	}
	if missing := lacking(tags, want); len(missing) > 0 {
		return "not tagged " + strings.Join(missing, ", ")
	}
	if s.Pool == castlePool {
		return ""
	}
	named := func(tag string) bool {
		return !strings.EqualFold(tag, castleTag) && (c.Cluster == "" || strings.EqualFold(tag, c.Cluster)) &&
			strings.HasPrefix(strings.ToLower(s.Name), strings.ToLower(tag)+"-")
	}
	if slices.ContainsFunc(tags, named) {
		return ""
	}
	return fmt.Sprintf("neither named after a cluster that it is tagged with nor in the pool %q", castlePool)
}

// on reads a boolean option. Anything unusual counts as set: it can only refuse.
func on(value string) bool { return value != "" && value != "0" && value != "false" }

// A volume that others are clones of is called base-…; a clone carries its
// base's name before its own: local-zfs:base-9000-disk-0/vm-421-disk-0. On
// LVM-thin a clone shows nothing, and its base is safe as the template that it is.
var baseVolume = regexp.MustCompile(`[:/]base-\d+-`)

// linked returns the first volume that is a linked clone or the base of one.
func linked(config Config) string {
	for _, volume := range config.Volumes() {
		if baseVolume.MatchString(volume) {
			return volume
		}
	}
	return ""
}
