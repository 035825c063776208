#!/bin/sh
# Starts Strawberry as an app of Home Assistant; its options are in /data/options.json.
set -eu

names=$(python -c 'import json; print(*json.load(open("/data/options.json")).get("names", []))')
set --
for name in $names; do set -- "$@" --name "$name"; done
[ $# -eq 0 ] || strawberry certs "$@"

exec strawberry up --lan --mqtt-port 1884 --mqtts-port 8884 --https-port 8443
