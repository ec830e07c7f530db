"""Engines that read our tables with the statements that we print; each of its own version, kept in `.interop/`."""
