"""Speech on a spoke: wake word, speech to text, text to speech. It knows no hub and no MQTT."""
