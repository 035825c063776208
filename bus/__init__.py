"""The MQTT link and skill calls over it: all that a spoke needs of MQTT; also ports and child processes."""
