#!/bin/sh
# Installs Strawberry into a directory of its own, for this user or, as root, for the machine.
#
#   sh install.sh [--from WHEEL] [--extras LIST] [--service up|hub|spoke]
#   sh install.sh --update [--from WHEEL]      # 'strawberry update' runs this
#   sh install.sh --rollback
#
# Each version has a venv below versions/; the link "current" says which one is used, "previous" which one was.
set -eu

fail() {
    printf 'install.sh: %s\n' "$1" >&2
    [ -z "${2:-}" ] || printf '  %s\n' "$2" >&2
    exit 1
}

if [ "$(id -u)" = 0 ]; then
    root=${STRAWBERRY_ROOT:-/opt/strawberry} links=${STRAWBERRY_BIN:-/usr/local/bin} manager=--system
else
    root=${STRAWBERRY_ROOT:-${XDG_DATA_HOME:-$HOME/.local/share}/strawberry}
    links=${STRAWBERRY_BIN:-$HOME/.local/bin} manager=--user
fi
action=install from='' extras='' service=''
while [ $# -gt 0 ]; do
    case $1 in
        --update | --rollback) action=${1#--} ;;
        --from | --extras | --service)
            [ $# -gt 1 ] || fail "$1 needs a value" "See the first lines of this file."
            case $1 in
                --from) from=$2 ;;
                --extras) extras=$2 ;;
                --service) service=$2 ;;
            esac
            shift
            ;;
        *) fail "unknown option $1" "See the first lines of this file." ;;
    esac
    shift
done
case $service in '' | up | hub | spoke) ;; *) fail "there is no service $service" "One of up, hub and spoke." ;; esac
case $extras in *[!a-z,]*) fail "these are no extras: $extras" "For example: --extras voice,gpio" ;; esac

python=${PYTHON:-python3}
check_python() {
    command -v "$python" >/dev/null || fail "there is no $python" "Install Python 3.11 or newer, or set PYTHON."
    "$python" -c 'import struct, sys; sys.exit(sys.version_info < (3, 11) or struct.calcsize("P") != 8)' ||
        fail "$python is not Python 3.11 or newer on 64 bits" "Use a 64-bit system of 2023 or newer, or set PYTHON."
    "$python" -c 'import ensurepip, venv' 2>/dev/null ||
        fail "$python cannot make virtual environments" "On Debian: apt install python3-venv"
}

# A link is replaced in one step: whoever starts the program meanwhile finds the old one or the new one.
point() {
    "$python" -c 'import os, sys; os.symlink(sys.argv[2], sys.argv[1] + ".new"); os.replace(sys.argv[1] + ".new", sys.argv[1])' \
        "$root/$1" "$2"
}

target() { if [ -L "$root/$1" ]; then readlink "$root/$1"; fi; }

# Restarts the services that run; systemd waits until each is ready, and this fails where one is not.
restart() {
    command -v systemctl >/dev/null || return 0
    for kind in up hub spoke; do
        systemctl "$manager" is-active --quiet "strawberry-$kind" || continue
        systemctl "$manager" restart "strawberry-$kind" || return 1
    done
}

back() {
    was=$(target previous) now=$(target current)
    [ -n "$was" ] && [ -x "$root/$was/bin/strawberry" ] || fail "there is no earlier version to go back to"
    point current "$was"
    point previous "$now"
}

# Makes the venv of a version and uses it; the one before stays as it is.
make_version() {
    version=versions/$(date -u +%Y%m%d-%H%M%S)-$$
    trap 'rm -rf "${root:?}/$version"' EXIT
    trap 'exit 130' INT TERM
    mkdir -p "$root/versions"
    "$python" -m venv "$root/$version"
    "$root/$version/bin/python" -m pip install --quiet --disable-pip-version-check "$1" ||
        fail "the package cannot be installed" "pip says above why; nothing was changed."
    "$root/$version/bin/strawberry" --version >/dev/null || fail "the new version does not start" "Nothing was changed."
    before=$(target current)
    [ -z "$before" ] || point previous "$before"
    point current "$version"
    trap - EXIT INT TERM
    for old in "$root"/versions/*; do
        case versions/${old##*/} in "$version" | "$before") ;; *) rm -rf "$old" ;; esac
    done
}

requirement() {
    [ -z "$from" ] || [ -f "$from" ] || fail "there is no file $from"
    name=${from:+$(cd "$(dirname "$from")" && pwd)/$(basename "$from")}
    printf '%s%s' "${name:-strawberry-home}" "${extras:+[$extras]}"
}

case $action in
    rollback)
        back
        restart || fail "a service does not start" "'strawberry service logs' shows why."
        ;;
    update)
        [ -n "$(target current)" ] || fail "nothing is installed in $root"
        [ ! -f "$root/extras" ] || extras=$(cat "$root/extras")
        check_python
        wanted=$(requirement)
        make_version "$wanted"
        restart || { back; restart || true; fail "a service does not start with the new version" "The version before is in use again."; }
        ;;
    install)
        check_python
        wanted=$(requirement)
        umask 022
        mkdir -p "$root" "$links"
        make_version "$wanted"
        printf '%s' "$extras" >"$root/extras"
        ln -sf "$root/current/bin/strawberry" "$links/strawberry"
        ;;
esac

"$root/current/bin/strawberry" --version
if [ -n "$service" ]; then
    "$root/current/bin/strawberry" service install "$service" "$manager" --now
fi
if [ "$action" = install ]; then
    case :$PATH: in *:"$links":*) ;; *) echo "Add $links to your PATH to start it as 'strawberry'." ;; esac
    echo "Next: 'strawberry up' for a hub, or 'strawberry spoke join https://HUB:8443' for a machine with skills."
fi
