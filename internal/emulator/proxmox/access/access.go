// Package access emulates the access control of Proxmox VE (PVE::AccessControl): users, API tokens, tickets,
// roles, and who may do what on which path.
package access

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/failure"
	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/option"
)

// Control has the users, API tokens, roles and access control lists of a datacenter.
type Control struct {
	config Config
	users  map[string]bool
	tokens map[string]apiToken // by id: castle@pve!castle
	roles  map[string][]string // privileges by name
	acl    []grant
}

// Config is what access needs of a datacenter.
type Config struct {
	User, Password string // a login; none while Password is empty
	// Explains has a node explain why it refuses a token, as before release 9.1.5.
	Explains bool
	// PoolOf returns the pool of a machine: it has the roles of that, too.
	PoolOf func(vmid int) string
}

// grant gives a user or a token a role on a path, and on those below if it propagates.
type grant struct {
	path, who, role string
	propagate       bool
}

const privileges = `Datastore.Allocate Datastore.AllocateSpace Datastore.AllocateTemplate Datastore.Audit
	Mapping.Audit Mapping.Modify Mapping.Use
	Permissions.Modify Pool.Allocate Pool.Audit SDN.Allocate SDN.Audit SDN.Use
	Sys.AccessNetwork Sys.Audit Sys.Console Sys.Incoming Sys.Modify Sys.PowerMgmt Sys.Syslog User.Modify
	VM.Allocate VM.Audit VM.Backup VM.Clone VM.Config.CDROM VM.Config.CPU VM.Config.Cloudinit VM.Config.Disk
	VM.Config.HWType VM.Config.Memory VM.Config.Network VM.Config.Options VM.Console VM.GuestAgent.Audit
	VM.GuestAgent.Unrestricted VM.Migrate VM.PowerMgmt VM.Replicate VM.Snapshot VM.Snapshot.Rollback`

// noAccess takes away what other roles grant.
const administrator, noAccess = "Administrator", "NoAccess"

// Root may do everything.
const Root = "root@pam"

// New returns a datacenter's access control without users.
func New(c Config) *Control {
	return &Control{
		config: c, users: map[string]bool{}, tokens: map[string]apiToken{},
		roles: map[string][]string{administrator: strings.Fields(privileges), noAccess: nil},
	}
}

// Admit creates a user, if it is a new one, that may do everything. A token's user has the token, too.
func (a *Control) Admit(credentials string) {
	id, secret, isToken := strings.Cut(credentials, "=")
	user, _, _ := strings.Cut(id, "!")
	if isToken {
		a.tokens[id] = apiToken{secret: secret}
	}
	if !a.users[user] {
		a.users[user] = true
		a.acl = append(a.acl, grant{"/", user, administrator, true})
	}
}

// rolesOn returns the roles that are granted on a path, with whether they propagate. The deepest path with a
// grant decides. Pools do not count.
func (a *Control) rolesOn(who, path string) map[string]bool {
	found := map[string]bool{}
	on := []string{"/"}
	for i, part := range strings.Split(path, "/") {
		if i > 0 && part != "" {
			on = append(on, strings.TrimSuffix(on[len(on)-1], "/")+"/"+part)
		}
	}
	for _, on := range on {
		here := map[string]bool{}
		for _, g := range a.acl {
			if g.path == on && g.who == who && (g.propagate || on == path) {
				here[g.role] = g.propagate
			}
		}
		if len(here) > 0 {
			found = here
		}
	}
	return found
}

// privileges returns what a user or token may do on a path, with whether it propagates. A machine also has
// the roles of its pool.
func (a *Control) privileges(who, path string) map[string]int {
	all := map[string]int{}
	user, _, isToken := strings.Cut(who, "!")
	if isToken && !a.tokens[who].separate {
		return a.privileges(user, path)
	}
	roles := a.rolesOn(who, path)
	if who == Root {
		roles = map[string]bool{administrator: true}
	}
	if pool := a.poolOf(path); pool != "" {
		for role := range a.rolesOn(who, "/pool/"+pool) {
			if _, known := roles[role]; !known {
				roles[role] = false
			}
		}
	}
	if _, none := roles[noAccess]; none {
		return all
	}
	for role, propagate := range roles {
		for _, p := range a.roles[role] {
			all[p] = max(all[p], option.Number(propagate))
		}
	}
	if isToken {
		its := a.privileges(user, path)
		maps.DeleteFunc(all, func(p string, _ int) bool { _, ok := its[p]; return !ok })
		for p := range all {
			all[p] = min(all[p], its[p])
		}
	}
	return all
}

// SetToken replaces all tokens that are accepted. A user that is new may do everything.
func (a *Control) SetToken(token string) {
	clear(a.tokens)
	a.Admit(token)
}

// Hide takes the access to a machine from the users that exist.
func (a *Control) Hide(vmid int) {
	for user := range a.users {
		a.acl = append(a.acl, grant{path: VMPath(vmid), who: user, role: noAccess})
	}
}

// Remove removes the access control lists of a machine.
func (a *Control) Remove(vmid int) {
	a.acl = slices.DeleteFunc(a.acl, func(r grant) bool { return r.path == VMPath(vmid) })
}

// Paths are those that have an access control list.
func (a *Control) Paths() (all []string) {
	for _, g := range a.acl {
		all = append(all, g.path)
	}
	return all
}

// poolOf returns the pool of the machine that a path names.
func (a *Control) poolOf(path string) string {
	id, err := strconv.Atoi(strings.TrimPrefix(path, "/vms/"))
	if err != nil || path != VMPath(id) {
		return ""
	}
	return a.config.PoolOf(id)
}

// VMPath is the path of a machine in access control lists.
func VMPath(id int) string { return fmt.Sprintf("/vms/%d", id) }

// Caller is the user or token of a call.
type Caller struct {
	ID string // root@pam, or user@realm!token

	access *Control
}

// As returns a caller.
func (a *Control) As(id string) Caller { return Caller{id, a} }

// Privileges returns what the caller may do on a path, with whether it propagates.
func (c Caller) Privileges(path string) map[string]int { return c.access.privileges(c.ID, path) }

// May reports whether the caller has all of these privileges on a path.
func (c Caller) May(path string, all ...string) bool { return c.Check(path, all...) == nil }

// Check is the error for the first of these privileges that the caller does not have on a path.
func (c Caller) Check(path string, all ...string) error {
	has := c.Privileges(path)
	for _, p := range all {
		if _, ok := has[p]; !ok {
			return failure.Forbidden(fmt.Sprintf(" (%s, %s)", path, p))
		}
	}
	return nil
}

// CheckAny is the error for a caller that has none of these privileges on a path.
func (c Caller) CheckAny(path string, any ...string) error {
	if slices.ContainsFunc(any, func(p string) bool { return c.May(path, p) }) {
		return nil
	}
	return failure.Forbidden(fmt.Sprintf(" (%s, %s)", path, strings.Join(any, "|")))
}

// CheckVM is check for a machine that exists, or that will be in a pool.
func (c Caller) CheckVM(id int, pool string, any ...string) error {
	if pool != "" && c.CheckAny("/pool/"+pool, any...) == nil {
		return nil
	}
	return c.CheckAny(VMPath(id), any...)
}
