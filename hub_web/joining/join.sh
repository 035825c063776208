#!/bin/sh
# @about@
# Opened by a file manager it has no window yet.
[ -t 0 ] || [ -z "${DISPLAY:-}${WAYLAND_DISPLAY:-}" ] || ! command -v x-terminal-emulator >/dev/null ||
    exec x-terminal-emulator -e sh "$0"
end() {
    printf '\n%s\n' "$1"
    [ ! -t 0 ] || { printf '%s' @close@ && read -r _; }
    exit
}
cd "$(mktemp -d)" || exit
PATH=$HOME/.local/bin:$PATH
echo @installing@
{ @install@; } || end @failed@
printf '\n%s\n' @joining@
@join@ || end @failed@
# With systemd it starts with this computer from now on.
strawberry service install spoke --samples --now && end @done@
printf '\n%s\n' @running@
@run@
end @failed@
