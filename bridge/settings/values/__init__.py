"""The types that settings are made of: sizes, durations, globs, layouts, cron expressions."""
