package platform

import "fmt"

// Fact is how a machine of a state is in the datacenter now.
type Fact struct {
	Key    string            `json:"machine"` // of its resource instance: worker-01
	ID     int               `json:"vmid"`
	Node   string            `json:"node,omitempty"` // where it is
	Status string            `json:"status"`         // running, stopped, absent or unknown
	UUID   string            `json:"uuid,omitempty"`
	Disks  map[string]string `json:"disks,omitempty"` // volumes, by interface
	Cards  map[string]string `json:"cards,omitempty"` // hardware addresses, by interface
	// Differs lists what is not as castle has left it: has moved from node pve1 to node pve2.
	Differs []string `json:"differs,omitempty"`
}

// Mask hides secrets in every text.
func (f *Fact) Mask(hide func(string) string) {
	f.Key, f.Node, f.Status, f.UUID = hide(f.Key), hide(f.Node), hide(f.Status), hide(f.UUID)
	for i, text := range f.Differs {
		f.Differs[i] = hide(text)
	}
	for _, all := range []map[string]string{f.Disks, f.Cards} {
		for option, text := range all {
			all[option] = hide(text)
		}
	}
}

// Lines describe what is not as castle has left the machine. create is the command that starts it.
func (f Fact) Lines(create string) (lines []string) {
	name := fmt.Sprintf("%s (VM %d) ", f.Key, f.ID)
	for _, text := range f.Differs {
		lines = append(lines, name+text)
	}
	if f.Status == "stopped" {
		lines = append(lines, fmt.Sprintf("%sis stopped on node %s; %s starts it", name, f.Node, create))
	}
	return lines
}
