stage {
  summary = "Finds the snapshot with Talos in Hetzner Cloud"

  inputs = {
    hcloud_token = secrets.hcloud_token
  }
}
