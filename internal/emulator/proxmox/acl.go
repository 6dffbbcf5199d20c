package proxmox

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// access is who may do what: the users, API tokens, roles and access control lists of a datacenter.
type access struct {
	users  map[string]bool
	tokens map[string]apiToken // by id: castle@pve!castle
	roles  map[string][]string // privileges by name
	acl    []grant
	guests map[int]*guest // a pool's rights are those of its machines
}

type apiToken struct {
	secret   string
	separate bool  // has only those privileges of its user that are granted to the token, too
	expire   int64 // seconds since 1970; 0: never
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

// root may do everything.
const root = "root@pam"

func newAccess(guests map[int]*guest) *access {
	return &access{
		guests: guests, users: map[string]bool{}, tokens: map[string]apiToken{},
		roles: map[string][]string{administrator: strings.Fields(privileges), noAccess: nil},
	}
}

// admit creates a user, if it is a new one, that may do everything. A token's user has the token, too.
func (a *access) admit(credentials string) {
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
func (a *access) rolesOn(who, path string) map[string]bool {
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
func (a *access) privileges(who, path string) map[string]int {
	all := map[string]int{}
	user, _, isToken := strings.Cut(who, "!")
	if isToken && !a.tokens[who].separate {
		return a.privileges(user, path)
	}
	roles := a.rolesOn(who, path)
	if who == root {
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
			all[p] = max(all[p], number(propagate))
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

// remove removes a machine with its access control lists.
func (a *access) remove(g *guest) {
	delete(a.guests, g.ID)
	a.acl = slices.DeleteFunc(a.acl, func(r grant) bool { return r.path == vmPath(g.ID) })
}

// poolOf returns the pool of the machine that a path names.
func (a *access) poolOf(path string) string {
	for _, g := range a.guests {
		if path == vmPath(g.ID) {
			return g.Pool
		}
	}
	return ""
}

func vmPath(id int) string { return fmt.Sprintf("/vms/%d", id) }

// caller is the user or token of a call.
type caller struct {
	id     string // root@pam, or user@realm!token
	access *access
}

// may reports whether the caller has all of these privileges on a path.
func (c caller) may(path string, all ...string) bool { return c.check(path, all...) == nil }

// check is the error for the first of these privileges that the caller does not have on a path.
func (c caller) check(path string, all ...string) error {
	has := c.access.privileges(c.id, path)
	for _, p := range all {
		if _, ok := has[p]; !ok {
			return forbidden(fmt.Sprintf(" (%s, %s)", path, p))
		}
	}
	return nil
}

// checkAny is the error for a caller that has none of these privileges on a path.
func (c caller) checkAny(path string, any ...string) error {
	if slices.ContainsFunc(any, func(p string) bool { return c.may(path, p) }) {
		return nil
	}
	return forbidden(fmt.Sprintf(" (%s, %s)", path, strings.Join(any, "|")))
}

// checkVM is check for a machine that exists, or that will be in a pool.
func (c caller) checkVM(id int, pool string, any ...string) error {
	if pool != "" && c.checkAny("/pool/"+pool, any...) == nil {
		return nil
	}
	return c.checkAny(vmPath(id), any...)
}

// checkVolume is the error for a caller that may not use a volume for a machine; 0 for none.
func (c caller) checkVolume(id int, volume, content string) error {
	storage, _, _ := strings.Cut(volume, ":")
	path, owner := "/storage/"+storage, ownerOf(volume)
	switch {
	case c.may(path, "Datastore.Allocate"), owner != 0 && owner == id:
		return nil
	case owner != 0:
		if err := c.check(path, "Datastore.Audit"); err != nil {
			return err
		}
		return c.check(vmPath(owner), "VM.Config.Disk")
	case content == "iso" || content == "vztmpl" || content == "import":
		return c.checkAny(path, "Datastore.AllocateSpace", "Datastore.Audit")
	}
	return internal("missing privileges to access %s", volume)
}

// permissions lists the caller's effective privileges: on one path, or on all for which the datacenter has a
// rule.
func permissions(c *call) (any, error) {
	if path := c.get("path"); path != "" {
		return map[string]any{path: c.caller.access.privileges(c.caller.id, path)}, nil
	}
	paths := strings.Fields("/ /access /access/groups /nodes /pool /sdn /storage /vms")
	for _, g := range c.s.access.acl {
		paths = append(paths, g.path)
	}
	for _, g := range c.s.guests {
		if g.Pool != "" {
			paths = append(paths, vmPath(g.ID))
		}
	}
	all := map[string]any{}
	for _, path := range paths {
		if has := c.caller.access.privileges(c.caller.id, path); len(has) > 0 {
			all[path] = has
		}
	}
	return all, nil
}
