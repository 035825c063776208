"""The agent: loop, tools, sentences and the skill framework. Knows no MQTT and no database."""
