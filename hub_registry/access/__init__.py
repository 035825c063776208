"""Accounts, tokens, enrolment and the audit: who may do what."""
