# What holds for every cluster of this repository. All of it is optional; remove
# the hash signs from what you want to say.

# required_castle_version = ">= 1.0"

# defaults {
#   timeout = "30m"                               # of stages that name none themselves
#   inputs  = { infisical_environment = "prod" }  # values below a cluster's terraform.tfvars
# }

# state {
#   snapshots = 20 # how many are kept of each stage's state
# }

# runs {
#   keep = 50 # of how many runs the journals and receipts are kept
# }
