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

// inMachines reports whether what a provider makes lives in the machines alone
// and ends with them.
func InMachines(provider string) bool { return provider == "registry.terraform.io/siderolabs/talos" }

// inStateOnly reports whether what a provider makes exists nowhere but in the state.
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

// kindOf is the kind of the objects that a type of the kubernetes provider stands for.
func kindOf(typ string) string {
	return apiVersion.ReplaceAllString(strings.TrimPrefix(typ, "kubernetes_"), "")
}

// outside is where the objects of a stage are, as far as castle can ask for them.
type Lookup struct {
	Cluster    gate.Target
	InCluster  []string // source addresses of the providers that castle wires to it
	Datacenter func() (*proxmox.Client, error)
}

// errUnasked says that castle does not know whom to ask for an object.
var ErrNoLookup = errors.New("nobody can be asked")

// has reports whether an object exists, by what `terraform import` takes it by.
// One that is being made is waited for, and report is told so.
func (o Lookup) Has(ctx context.Context, typ, id string, report func(string)) (bool, error) {
	first, second, both := strings.Cut(id, "/")
	switch {
	case isDownload(typ):
		client, err := o.Datacenter()
		if err != nil {
			return false, err
		}
		image := proxmox.Owned{Kind: proxmox.Image, Node: first, Volume: second}
		things, err := proxmox.Search{Client: client}.Gone(ctx, []proxmox.Owned{image}, report)
		if err != nil {
			return false, err
		}
		return !things[0].Gone, nil
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

func IsMachine(typ string) bool { return typ == "proxmox_virtual_environment_vm" }

// isInCluster reports whether the resources of a type are made by one of these
// providers, which castle wires to the cluster.
func IsInCluster(typ string, providers []string) bool {
	name, _, _ := strings.Cut(typ, "_")
	return slices.Contains(providers, "registry.terraform.io/hashicorp/"+name)
}
