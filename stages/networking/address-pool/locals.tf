# Addresses as numbers, so that "lies in the pool" is a comparison.
locals {
  weight = [16777216, 65536, 256, 1]

  ends = [
    for entry in var.metallb_addresses :
    can(cidrhost(entry, 0)) ? [cidrhost(entry, 0), cidrhost(entry, -1)] : split("-", entry) if !can(regex(":", entry))
  ]

  ranges = [
    for pair in local.ends : {
      first = sum([for i, octet in split(".", pair[0]) : tonumber(octet) * local.weight[i]])
      last  = sum([for i, octet in split(".", pair[1]) : tonumber(octet) * local.weight[i]])
    }
  ]

  # Everything that has an address of its own.
  holders = merge(var.address_pool_nodes, var.address_pool_vip == null ? {} : { "the Kubernetes API (vip)" = var.address_pool_vip })

  number = {
    for holder, address in local.holders : holder => sum([for i, octet in split(".", address) : tonumber(octet) * local.weight[i]])
    if !can(regex(":", address))
  }

  inside = concat(
    [
      for holder, number in local.number : "${local.holders[holder]} of ${holder}"
      if anytrue([for range in local.ranges : number >= range.first && number <= range.last])
    ],
    # IPv6 has CIDRs alone, and its addresses are too large for numbers.
    [
      for holder, address in local.holders : "${address} of ${holder}" if can(regex(":", address)) && anytrue([
        for entry in var.metallb_addresses : try(cidrhost("${address}/${split("/", entry)[1]}", 0) == cidrhost(entry, 0), false) if can(regex(":", entry))
      ])
    ],
  )
}
