"""Running as a service: units and tasks for the system's manager, and what a service tells it."""
