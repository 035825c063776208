"""This device as microphone and loudspeaker of a server, by Wyoming or as ESPHome's voice assistant."""
