stage {
  summary = "Names existing machines, which run Talos in maintenance mode"
}
