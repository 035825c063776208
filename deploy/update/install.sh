#!/bin/sh
# Installs Strawberry into a directory of its own, for this user or, as root, for the machine.
#
#   sh install.sh --from WHEEL|CHECKOUT [--extras LIST] [--service up|hub|spoke]
#   sh install.sh --update [--from WHEEL]      # 'strawberry update' runs this
#   sh install.sh --rollback
#
# In place of WHEEL, strawberry-home is what the package index has under this name.
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
    rm -f "$root/$1.new"
    "$python" -c 'import os, sys; os.symlink(sys.argv[2], sys.argv[1] + ".new"); os.replace(sys.argv[1] + ".new", sys.argv[1])' \
        "$root/$1" "$2"
}

target() { if [ -L "$root/$1" ]; then readlink "$root/$1"; fi; }

# Lets one of these run at a time: two would remove each other's versions.
unused=''
begin() {
    mkdir "$root/lock" 2>/dev/null ||
        fail "another update of $root is running" "If none is, remove the directory $root/lock."
    trap 'rmdir "$root/lock"; [ -z "$unused" ] || rm -rf "${root:?}/$unused"' EXIT
    trap 'exit 130' INT TERM HUP
}

running() {
    command -v systemctl >/dev/null || return 0
    for kind in up hub spoke; do
        if systemctl "$manager" is-active --quiet "strawberry-$kind"; then echo "strawberry-$kind"; fi
    done
}

stop() { for unit in $units; do systemctl "$manager" stop "$unit" || return 1; done; }

# systemd waits until each is ready, and this fails where one is not.
start() {
    for unit in $units; do
        systemctl "$manager" reset-failed "$unit" 2>/dev/null || true
        systemctl "$manager" start "$unit" || return 1
    done
}

# The directories with databases of a service.
data() {
    systemctl "$manager" show --property=Environment --value "$1" | "$python" -c '
import os, shlex, sys
home = dict(word.partition("=")[::2] for word in shlex.split(sys.stdin.read())).get("STRAWBERRY_HOME")
for part in [os.path.join(home, each) for each in ("hub", "spoke")] if home else []:
    if os.path.isdir(part) and not os.path.islink(part):
        print(part)'
}

# The databases of the services as the version before left them: a new one may change their form. Links stay links,
# since root does this in directories of others.
save() {
    rm -rf "$root/databases"
    mkdir -m 700 "$root/databases"
    for unit in $units; do
        data "$unit" | while read -r directory; do
            copy=$root/databases/$unit/${directory##*/}
            mkdir -p "$copy" || exit 1
            for file in "$directory"/*.db "$directory"/*.db-wal; do
                [ ! -f "$file" ] || cp -pP "$file" "$copy" || exit 1
            done
        done || return 1
    done
}
restore() {
    for unit in $units; do
        data "$unit" | while read -r directory; do
            copy=$root/databases/$unit/${directory##*/}
            [ -d "$copy" ] || continue
            rm -f "$directory"/*.db "$directory"/*.db-wal "$directory"/*.db-shm
            for file in "$copy"/*; do
                [ ! -f "$file" ] || cp -pP "$file" "$directory" || exit 1
            done
        done || return 1
    done
}

# Makes the venv of a version and uses it; the ones before stay as they are.
make_version() {
    version=versions/$(date -u +%Y%m%d-%H%M%S)-$$
    unused=$version
    mkdir -p "$root/versions"
    # Debian's python3-lgpio is the one of a system whose Python has no wheel of it.
    case ,$extras, in *,gpio,*) site=--system-site-packages ;; *) site='' ;; esac
    "$python" -m venv ${site:+"$site"} "$root/$version"
    "$root/$version/bin/python" -m pip install --quiet --disable-pip-version-check "$1" ||
        fail "the package cannot be installed" "pip says above why; nothing was changed."
    "$root/$version/bin/strawberry" --version >/dev/null || fail "the new version does not start" "Nothing was changed."
    before=$(target current) earlier=$(target previous)
    # From here on it is in use, and services may be stopped: nothing interrupts that.
    trap '' INT TERM HUP
    unused=''
    [ -z "$before" ] || point previous "$before"
    point current "$version"
}

keep_two() {
    for old in "$root"/versions/*; do
        case versions/${old##*/} in "$version" | "$before") ;; *) rm -rf "$old" ;; esac
    done
}

# Brings the version before back, and what was there to go back to then.
undo() {
    point current "$before"
    if [ -n "$earlier" ]; then point previous "$earlier"; else rm -f "$root/previous"; fi
    unused=$version
}

package=strawberry-home
requirement() {
    [ -n "$from" ] || fail "it is not said what to install" "Add --from WHEEL, or --from $package where the package index has it."
    if [ "$from" = "$package" ]; then
        name=$package
    else
        [ -e "$from" ] || fail "there is no file $from"
        name=$(cd "$(dirname "$from")" && pwd)/$(basename "$from")
    fi
    printf '%s%s' "$name" "${extras:+[$extras]}"
}

umask 022
case $action in
    rollback)
        was=$(target previous) now=$(target current)
        [ -n "$was" ] && [ -x "$root/$was/bin/strawberry" ] || fail "there is no earlier version to go back to"
        begin
        units=$(running)
        trap '' INT TERM HUP
        point current "$was"
        point previous "$now"
        # The databases stay as they are: those of before the update lack what happened since.
        if ! { stop && start; }; then
            point current "$now"
            point previous "$was"
            { stop && start; } || fail "a service starts with neither version" "'strawberry service logs' shows why."
            fail "a service does not start with the version before" \
                "This version is in use again: its databases may be of a newer form; 'strawberry restore' has a backup."
        fi
        ;;
    update)
        [ -n "$(target current)" ] || fail "nothing is installed in $root"
        [ ! -f "$root/extras" ] || extras=$(cat "$root/extras")
        # Only who chose the package index gets what it has under our name.
        [ -n "$from" ] || [ ! -f "$root/from-index" ] || from=$package
        check_python
        wanted=$(requirement)
        begin
        make_version "$wanted"
        units=$(running)
        if ! { stop && save; }; then
            undo
            start || true
            fail "the databases cannot be copied" "The version before is in use again."
        fi
        if ! start; then
            undo
            { stop && restore && start; } ||
                fail "a service starts neither with the new version nor with the one before" \
                    "'strawberry service logs' shows why; the databases as they were are in $root/databases."
            rm -rf "$root/databases"
            fail "a service does not start with the new version" "The version before is in use again."
        fi
        rm -rf "$root/databases"
        keep_two
        ;;
    install)
        check_python
        wanted=$(requirement)
        mkdir -p "$root" "$links"
        begin
        make_version "$wanted"
        keep_two
        printf '%s' "$extras" >"$root/extras"
        ln -sf "$root/current/bin/strawberry" "$links/strawberry"
        # Where man looks for the programs of this directory.
        pages=${links%/*}/share/man/man1
        if [ -d "$root/current/share/man/man1" ] && mkdir -p "$pages" 2>/dev/null; then
            for page in "$root"/current/share/man/man1/strawberry*; do ln -sf "$root/current/share/man/man1/${page##*/}" "$pages/"; done
        fi
        ;;
esac
case $from in "$package") touch "$root/from-index" ;; ?*) rm -f "$root/from-index" ;; esac

"$root/current/bin/strawberry" --version
if [ -n "$service" ]; then
    "$root/current/bin/strawberry" service install "$service" "$manager" --now
fi
if [ "$action" = install ]; then
    command=strawberry
    case :$PATH: in
        *:"$links":*) ;;
        *)
            command=$links/strawberry
            echo "This terminal does not find it yet. Type this once:  export PATH=\"$links:\$PATH\""
            echo "If a new login does not find it either, add that line to ~/.profile."
            ;;
    esac
    echo "Next: '$command up' for a hub, or '$command spoke join https://HUB:8443' for a machine with skills."
fi
