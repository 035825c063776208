"""Turns that are served: what a hub and a spoke have in common when they answer messages.

``turns`` runs them, ``questions`` asks the person of one, and ``http`` is the chat contract over HTTP.
"""
