"""The files of a project that people edit: a new project, one more pipeline, a changed selection."""
