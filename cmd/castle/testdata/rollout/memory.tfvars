nodes = {
  cp-01 = { role = "controlplane", vm_id = 421, address = "192.168.1.211", cores = 2, memory = 6144 }
  cp-02 = { role = "controlplane", vm_id = 422, address = "192.168.1.212", cores = 2, memory = 6144 }
  cp-03 = { role = "controlplane", vm_id = 423, address = "192.168.1.213", cores = 2, memory = 6144 }

  worker-01 = { role = "worker", vm_id = 424, address = "192.168.1.214", cores = 4, memory = 10240, longhorn_disk = 40 }
  worker-02 = { role = "worker", vm_id = 425, address = "192.168.1.215", cores = 4, memory = 10240, longhorn_disk = 40 }
}
