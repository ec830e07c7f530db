"""Types of settings: sizes, durations, globs, layouts, cron expressions."""
