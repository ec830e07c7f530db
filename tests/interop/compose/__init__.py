"""docker-compose.yml in the hands of those that run such files: Compose's own library, and an engine."""
