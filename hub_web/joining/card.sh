#!/bin/sh
# @about@
home=/home/strawberry
id strawberry >/dev/null 2>&1 || useradd --create-home --shell /usr/sbin/nologin strawberry
for group in audio dialout gpio i2c spi video; do usermod -aG "$group" strawberry; done
# The network may come late.
until apt-get update && @system@; do sleep 20; done
until runuser -l strawberry -s /bin/sh -c @install@; do sleep 60; done
install -d -m 700 -o strawberry -g strawberry "$home/.strawberry"
printf %s @token@ | install -m 600 -o strawberry -g strawberry /dev/stdin "$home/.strawberry/token"
"$home/.local/bin/strawberry" service install spoke --system --run-as strawberry --samples --now \
    --token-file "$home/.strawberry/token" --hub @url@ --hub-key @key@@insecure@
