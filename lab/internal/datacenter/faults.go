package datacenter

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/ephemeral-castle/castle/internal/emulator/proxmox"
)

// Faults are what is to go wrong.
type Faults struct {
	// WebhookLate is how much later than its Pod MetalLB's webhook listens.
	WebhookLate time.Duration
	// GhostVM is the id of a running VM that is somebody else's.
	GhostVM int
	// SecretExists says that an earlier cluster left its kubeconfig in Infisical.
	SecretExists bool
}

// ParseFaults reads NAME=VALUE, one for each.
func ParseFaults(texts []string) (Faults, error) {
	var f Faults
	for _, text := range texts {
		name, value, ok := strings.Cut(text, "=")
		if !ok {
			return f, fmt.Errorf("fault %q: write it as NAME=VALUE", text)
		}
		var err error
		switch name {
		case "webhook-late":
			if f.WebhookLate, err = time.ParseDuration(value); err == nil && f.WebhookLate < 0 {
				err = fmt.Errorf("%s is negative", value)
			}
		case "ghost-vm":
			if f.GhostVM, err = strconv.Atoi(value); err == nil && f.GhostVM < 100 {
				err = fmt.Errorf("%s is no VM id: they begin at 100", value)
			}
		case "infisical-secret-exists":
			f.SecretExists, err = strconv.ParseBool(value)
		default:
			return f, fmt.Errorf("fault %q: there is no such fault; there are webhook-late=DURATION, ghost-vm=ID, infisical-secret-exists=1", name)
		}
		if err != nil {
			return f, fmt.Errorf("fault %s: %w", name, err)
		}
	}
	return f, nil
}

// ghost is a VM that runs and has nothing to do with any cluster.
func ghost(id int) proxmox.VM {
	return proxmox.VM{ID: id, Name: "prod-database", Running: true, Config: map[string]string{
		"cores": "4", "memory": "16384", "ostype": "l26", "scsihw": "virtio-scsi-pci",
		"scsi0": fmt.Sprintf("local-lvm:vm-%d-disk-0,size=200G", id),
	}}
}
