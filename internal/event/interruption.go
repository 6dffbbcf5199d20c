package event

import "time"

// Interruption is what a run waits for that its user wants to end.
type Interruption struct {
	Times int    `json:"times"` // how often it was interrupted
	Works []Work `json:"works"`
}

// Work is what Terraform is at: a resource, or a command that is at none.
type Work struct {
	Layer   string    `json:"layer"`
	Stage   string    `json:"stage"`
	Command string    `json:"command"`           // init, plan, apply …
	Address string    `json:"address,omitempty"` // a resource's
	Action  string    `json:"action,omitempty"`  // create, update, delete …
	Since   time.Time `json:"since"`
}
