"""Answers of the HTTP API that commands, pages and devices read; one module for each subject."""
