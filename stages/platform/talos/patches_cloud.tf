# A kubelet taints its node when it registers it, and never again: the controller takes the taint off for good.
locals {
  cloud_patches = var.external_cloud_provider ? [yamlencode({ cluster = { externalCloudProvider = { enabled = true } } })] : []
}
