package recovery

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube"
	"github.com/ephemeral-castle/castle/internal/proxmox"
)

// InMachines reports whether a provider's resources exist only inside the machines and end with them.
func InMachines(provider string) bool { return provider == "registry.terraform.io/siderolabs/talos" }

// InStateOnly reports whether a provider's resources exist only in the state.
func InStateOnly(provider string) bool {
	switch provider {
	case "terraform.io/builtin/terraform",
		"registry.terraform.io/hashicorp/random",
		"registry.terraform.io/hashicorp/tls":
		return true
	}
	return false
}

var apiVersion = regexp.MustCompile(`_v\d+((alpha|beta)\d+)?$`)

// kindOf returns the Kubernetes kind that a resource type of the kubernetes provider manages.
func kindOf(typ string) string {
	return apiVersion.ReplaceAllString(strings.TrimPrefix(typ, "kubernetes_"), "")
}

// Lookup finds the objects of a stage in the cluster and the datacenter.
type Lookup struct {
	Cluster    gate.Target
	InCluster  []string // source addresses of the providers that castle wires to it
	Datacenter func() (*proxmox.Client, error)
}

// ErrNoLookup reports that castle has no way to look up an object of that type.
var ErrNoLookup = errors.New("nobody can be asked")

// Has reports whether an object exists, by the id that `terraform import` takes. It waits for one that is
// still being created, and reports that.
func (o Lookup) Has(ctx context.Context, typ, id string, report func(string)) (bool, error) {
	first, second, both := strings.Cut(id, "/")
	switch {
	case isDownload(typ):
		client, err := o.Datacenter()
		if err != nil {
			return false, err
		}
		image := proxmox.Owned{Kind: proxmox.Image, Node: first, Volume: second}
		found, err := proxmox.Search{Client: client}.Gone(ctx, []proxmox.Owned{image}, report)
		if err != nil {
			return false, err
		}
		return !found[0].Gone, nil
	case !IsInCluster(typ, o.InCluster):
		return false, ErrNoLookup
	case typ == "helm_release":
		return kube.ReleaseExists(ctx, o.Cluster, first, second)
	case !both:
		first, second = "", first
	}
	return kube.Exists(ctx, o.Cluster, kindOf(typ), first, second)
}

func isDownload(typ string) bool {
	return typ == "proxmox_virtual_environment_download_file" || typ == "proxmox_download_file"
}

// IsMachine reports whether a resource type is a virtual machine.
func IsMachine(typ string) bool { return typ == "proxmox_virtual_environment_vm" }

// IsInCluster reports whether the resources of a type come from one of these providers, which castle
// connects to the cluster.
func IsInCluster(typ string, providers []string) bool {
	name, _, _ := strings.Cut(typ, "_")
	return slices.Contains(providers, "registry.terraform.io/hashicorp/"+name)
}
