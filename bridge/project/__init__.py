"""The files of a project, written for people to edit: a new one, and one more pipeline in one that is there."""
