# The image factory makes the schematic of talos_extensions. Its id is the hash of its text, so that a plan knows
# it; the factory has to have seen the text once.
provider "talos" {
  image_factory_url = "https://${var.talos_image_factory}"
}

locals {
  schematic = format(
    "customization:\n    systemExtensions:\n        officialExtensions:\n%s",
    join("", [for name in sort(distinct(var.talos_extensions)) : "            - ${name}\n"]),
  )
  schematic_id = length(var.talos_extensions) == 0 ? var.talos_schematic_id : sha256(local.schematic)
}

resource "talos_image_factory_schematic" "extensions" {
  count = length(var.talos_extensions) == 0 ? 0 : 1

  schematic = local.schematic

  lifecycle {
    postcondition {
      condition     = self.id == sha256(local.schematic)
      error_message = "The image factory calls the schematic of talos_extensions ${self.id}, and not by the hash of its text: set talos_schematic_id to this id instead of talos_extensions."
    }
  }
}
