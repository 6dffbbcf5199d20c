stage {
  summary = "Hands on the secrets of secrets.tfvars, for clusters without a vault"
}
