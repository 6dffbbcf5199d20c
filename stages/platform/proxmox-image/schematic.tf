# The image factory makes the schematics of extensions. The id of one is the hash of its text, so that a plan knows
# it; the factory has to have seen the text once.
provider "talos" {
  image_factory_url = "https://${var.talos_image_factory}"
}

locals {
  # The extensions of each machine: those of all, of its role and its own.
  extensions = {
    for name, machine in var.nodes : name => sort(distinct(concat(var.talos_extensions, flatten([
      for key, given in var.talos_machine_schematics : given.extensions if contains([machine.role, name], key)
    ]))))
  }

  schematics = {
    for name, extensions in local.extensions : name => format(
      "customization:\n    systemExtensions:\n        officialExtensions:\n%s",
      join("", [for extension in extensions : "            - ${extension}\n"]),
    )
  }

  # stage.hcl repeats this. A machine's own id comes over that of its role.
  schematic_ids = {
    for name, machine in var.nodes : name => compact(concat(
      [for key in [name, machine.role] : try(var.talos_machine_schematics[key].id, null)],
      [length(local.extensions[name]) == 0 ? var.talos_schematic_id : sha256(local.schematics[name])],
    ))[0]
  }
}

resource "talos_image_factory_schematic" "extensions" {
  for_each = {
    for name, text in local.schematics : substr(sha256(text), 0, 12) => text...
    if sha256(text) == local.schematic_ids[name]
  }

  schematic = each.value[0]

  lifecycle {
    postcondition {
      condition     = self.id == sha256(self.schematic)
      error_message = "The image factory calls the schematic of some extensions ${self.id}, and not by the hash of its text: set this id instead of the extensions, in talos_schematic_id or talos_machine_schematics."
    }
  }
}
