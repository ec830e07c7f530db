"""What `bridge.settings.load` is made of: the YAML with its lines, variables, units, checked types, secrets, explanations."""
