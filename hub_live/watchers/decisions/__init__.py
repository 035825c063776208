"""Proposals and decisions of the model, within the calls that a person approved."""
