variable "longhorn_namespace" {
  description = "Namespace of Longhorn."
  type        = string
  default     = "longhorn-system"
}

variable "longhorn_chart_repository" {
  description = "Helm repository of the chart longhorn."
  type        = string
  default     = "https://charts.longhorn.io"
}

variable "longhorn_chart_version" {
  description = "Version of the chart longhorn. An existing Longhorn moves one minor version at a time."
  type        = string
  default     = "1.12.1"

  validation {
    condition     = can(regex("^[0-9]+\\.[0-9]+\\.[0-9]+$", var.longhorn_chart_version))
    error_message = "longhorn_chart_version is an exact version, such as 1.12.1."
  }
}

variable "longhorn_data_path" {
  description = "Where Longhorn keeps its data on a node. The platform mounts the second disk there."
  type        = string
  default     = "/var/lib/longhorn"

  validation {
    condition     = can(regex("^/var/[^/]", var.longhorn_data_path))
    error_message = "longhorn_data_path begins with /var/: nothing else of a node can be written to."
  }
}

variable "longhorn_replica_count" {
  description = "Replicas of a volume. More than there are storage nodes, and a volume never becomes healthy."
  type        = number
  default     = 1

  validation {
    condition     = var.longhorn_replica_count >= 1 && floor(var.longhorn_replica_count) == var.longhorn_replica_count
    error_message = "longhorn_replica_count is a whole number of at least 1."
  }
}

variable "longhorn_over_provisioning_percentage" {
  description = "How much of a disk's size may be promised to volumes."
  type        = number
  default     = 200

  validation {
    condition     = var.longhorn_over_provisioning_percentage >= 100 && floor(var.longhorn_over_provisioning_percentage) == var.longhorn_over_provisioning_percentage
    error_message = "longhorn_over_provisioning_percentage is a whole number of at least 100."
  }
}

variable "longhorn_backup_target" {
  description = "Where backups go: s3://bucket@eu-central-1/, or nfs://nas.lan:/volume1/longhorn. Without one, Longhorn makes no backups; S3 needs credentials."
  type        = string
  default     = null

  validation {
    condition     = can(regex("^(s3://[^@/]+@[^@/]+/|nfs://[^@/:]+:/.)", coalesce(var.longhorn_backup_target, "s3://bucket@region/")))
    error_message = "longhorn_backup_target has the form s3://<bucket>@<region>/<path>, or nfs://<server>:/<path>."
  }
}

variable "longhorn_s3_access_key_id" {
  description = "Access key id of the backup bucket. castle wires it from the secrets layer."
  type        = string
  default     = null
  sensitive   = true
}

variable "longhorn_s3_secret_access_key" {
  description = "Secret access key of the backup bucket. castle wires it from the secrets layer."
  type        = string
  default     = null
  sensitive   = true
}

variable "longhorn_s3_endpoint" {
  description = "URL of the backup bucket's S3 server, such as https://s3.example.org:9000. Without it, the bucket is one of AWS."
  type        = string
  default     = null

  validation {
    condition     = can(regex("^https?://[^/]+$", coalesce(var.longhorn_s3_endpoint, "https://s3.example.org")))
    error_message = "longhorn_s3_endpoint is a https:// address without a path, such as https://s3.example.org:9000."
  }
}

variable "longhorn_s3_ca_file" {
  description = "Absolute path of a file with the certificate of the authority that signed the S3 server's, in PEM. Without it the system's authorities count."
  type        = string
  default     = null

  validation {
    condition     = var.longhorn_s3_ca_file == null || startswith(coalesce(var.longhorn_s3_ca_file, "/"), "/")
    error_message = "longhorn_s3_ca_file is an absolute path: Terraform runs in a folder of castle's own."
  }
}

variable "longhorn_values" {
  description = "Further values of the chart (YAML), applied last."
  type        = list(string)
  default     = []
}
