"""YAML files as trees in which every value knows its line, and `${...}` in them."""
