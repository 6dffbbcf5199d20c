package proxmox

import "path"

// Fault changes what happens to the calls that it matches.
type Fault struct {
	Method string // any, if empty
	// Path is a pattern of path.Match for the decoded path below /api2/json:
	// "nodes/*/qemu/421/status/start".
	Path  string
	Times int // how many calls it meets; all of them, if 0
	// Code, when set, answers with this status and Text and does nothing else.
	Code int
	Text string
	// Task makes the task that the call starts end with this exit status and
	// without any effect.
	Task string
	// Lock, when set, locks the guest that the call is about before it is answered.
	Lock string
	// Hold keeps the task that the call starts from ending until it is closed.
	Hold <-chan struct{}
	// Drop cuts the connection after the call has had its effect.
	Drop bool
}

// Fail adds a fault. The oldest that matches a call wins.
func (s *Server) Fail(f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, &f)
}

// SetOffline takes a node off the network, or brings it back.
func (s *Server) SetOffline(node string, offline bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.offline[node] = offline
}

func (s *Server) takeFault(c *call) *Fault {
	for i, f := range s.faults {
		if f.Method != "" && f.Method != c.method {
			continue
		}
		if ok, err := path.Match(f.Path, c.path); !ok || err != nil {
			continue
		}
		if f.Times > 0 {
			if f.Times--; f.Times == 0 {
				s.faults = append(s.faults[:i:i], s.faults[i+1:]...)
			}
		}
		return f
	}
	return nil
}
