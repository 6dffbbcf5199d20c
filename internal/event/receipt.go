package event

// Thing is something that a destroyed stage owned, and whether it is gone.
type Thing struct {
	Stage  string `json:"stage"`
	Kind   string `json:"kind"`             // machine, disk, image, snippet, file, kubeconfig, talosconfig, state …
	ID     string `json:"id"`               // 421, local-lvm:vm-421-disk-0, a path
	Where  string `json:"where,omitempty"`  // node proxmox
	Gone   bool   `json:"gone"`             // proved: somebody who knows was asked and said so
	Reason string `json:"reason,omitempty"` // why it is not, or what stands there now
	Way    string `json:"way,omitempty"`    // how to remove it
}

// Stay is a stage that a destroy leaves, and why.
type Stay struct {
	Stage string `json:"stage"`
	Why   string `json:"why"`
}

// Receipt is what a destroy has proved.
type Receipt struct {
	Run     string  `json:"run"`
	Cluster string  `json:"cluster"`
	Proved  bool    `json:"proved"` // everything that was to go is gone, and nothing was taken on trust but Unasked
	Things  []Thing `json:"things"`
	Stays   []Stay  `json:"stays"`
	// Unasked are resources that Terraform says it deleted and that castle cannot ask for.
	Unasked []string `json:"unasked"`
}
