"""Other tools that run pipelines or read what they loaded."""
