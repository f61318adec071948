#!/bin/sh
# Before removal; an upgrade passes.
set -e
case "$1" in
    upgrade | 1 | failed-upgrade | deconfigure) exit 0 ;;
esac
[ -d /run/systemd/system ] || exit 0
stopped=
for unit in @services@; do
    if systemctl is-active --quiet "$unit"; then
        systemctl stop "$unit"
        stopped="$stopped $unit"
    fi
done
if [ "@package@" = holdfast-agent ]; then
    # What is left now is no spare: shims in which workers run, and which nobody could watch any more.
    for name in /proc/[0-9]*/comm; do
        if [ "$(cat "$name" 2>/dev/null)" = holdfast-shim ]; then
            echo "holdfast-agent: workers run on this host. Drain it first: holdfast host drain NAME" >&2
            for unit in $stopped; do systemctl start "$unit"; done
            exit 1
        fi
    done
fi
