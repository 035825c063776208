"""The hub's own affairs over HTTP: its models and their keys, its health, its log, its backups."""
