"""Schedules of the real loader, each decided by one seed: every request, hand-over of a thread, pause and death."""
