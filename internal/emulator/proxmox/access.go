package proxmox

import (
	"strconv"
	"strings"

	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/access"
	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/failure"
	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/rpc"
)

// loginPath is the one call that needs no credentials.
const loginPath = "access/ticket"

func (s *Server) version(c *rpc.Call) (any, error) {
	parts := append(strings.SplitN(s.config.Version, ".", 3), "", "")
	release := strings.TrimSuffix(parts[0]+"."+parts[1], ".")
	return map[string]any{"version": s.config.Version, "release": release, "repoid": "8f2c4a61"}, nil
}

// before reports whether the configured release is older than the given one.
func (c *Config) before(want ...int) bool {
	have := append(strings.Split(c.Version, "."), make([]string, len(want))...)
	for i, w := range want {
		if h, _ := strconv.Atoi(have[i]); h != w { //nolint:errcheck // a part that is no number counts as 0
			return h < w
		}
	}
	return false
}

// readToken answers as PVE::API2::User's read_token: a token is not the user that it belongs to, so that it
// may not read itself without User.Modify (PVE::RPCEnvironment, userid-param and userid-group).
func (s *Server) readToken(c *rpc.Call) (any, error) {
	user := c.Get("userid")
	if c.Caller.ID != user && !c.Caller.May("/access/groups", "User.Modify") {
		return nil, failure.Forbidden("")
	}
	return s.access.Token(user, c.Get("tokenid"))
}

func (s *Server) login(c *rpc.Call) (any, error) {
	return s.access.Login(c.Get("username"), c.Get("password"))
}

// permissions lists the caller's effective privileges: on one path, or on all for which the datacenter has a
// rule.
func (s *Server) permissions(c *rpc.Call) (any, error) {
	if path := c.Get("path"); path != "" {
		return map[string]any{path: c.Caller.Privileges(path)}, nil
	}
	paths := append(s.access.Paths(),
		strings.Fields("/ /access /access/groups /nodes /pool /sdn /storage /vms")...)
	for _, g := range s.guests.All() {
		if g.Pool != "" {
			paths = append(paths, access.VMPath(g.ID))
		}
	}
	all := map[string]any{}
	for _, path := range paths {
		if has := c.Caller.Privileges(path); len(has) > 0 {
			all[path] = has
		}
	}
	return all, nil
}
