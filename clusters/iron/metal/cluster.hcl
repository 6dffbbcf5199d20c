# iron: one control plane and one worker on machines that exist, with an address of IPv6 beside those of their router.

stage "infisical" { source = "secrets/infisical" }
stage "keys" { source = "secrets/keys" }

stage "machines" { source = "platform/existing-machines" }
stage "talos" { source = "platform/talos" }
