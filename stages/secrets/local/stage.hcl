stage {
  summary = "Outputs the secrets of secrets.tfvars, for clusters without a secret store"
}
