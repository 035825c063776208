"""Calls of skills: rights, routing, confirmation, audit."""
