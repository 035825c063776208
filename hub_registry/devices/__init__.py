"""Devices, their presence and their registered skills."""
