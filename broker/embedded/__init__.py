"""The embedded broker for MQTT 3.1.1, for a home that runs no broker of its own."""
