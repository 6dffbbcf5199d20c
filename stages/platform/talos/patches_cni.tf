# Without a network plugin and kube-proxy of Talos, Cilium's agents reach the API through KubePrism, Talos' own
# load balancer on each machine: the Service kubernetes works only once they run.
locals {
  cni_patches = var.cni == "flannel" ? [] : [
    yamlencode({
      cluster = merge(
        { network = { cni = { name = "none" } } },
        var.cni == "cilium" ? { proxy = { disabled = true } } : {},
      )
      machine = { features = { kubePrism = { enabled = true, port = 7445 } } }
    }),
  ]
}
