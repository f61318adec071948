#!/bin/sh
# After unpacking. Starts nothing; what runs is restarted, so that it is the version that is installed. Workers run on.
set -e
case "$1" in abort-*) exit 0 ;; esac
if command -v systemd-sysusers >/dev/null && [ -e /usr/lib/sysusers.d/@package@.conf ]; then
    systemd-sysusers /usr/lib/sysusers.d/@package@.conf
fi
if command -v systemd-tmpfiles >/dev/null && [ -e /usr/lib/tmpfiles.d/@package@.conf ]; then
    systemd-tmpfiles --create /usr/lib/tmpfiles.d/@package@.conf
fi
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload
    for unit in @services@; do
        if [ "$unit" = holdfast-agent.service ] && systemctl is-active --quiet "$unit"; then
            # Not in the middle of a hang's recovery, if two minutes are enough; and every worker is the same afterwards.
            # Whatever these two find, they say it, and the package is installed all the same.
            timeout 150 holdfast-agent upgrade before --max-wait 2m || true
            systemctl try-restart "$unit"
            timeout 90 holdfast-agent upgrade after --max-wait 1m || true
        else
            systemctl try-restart "$unit"
        fi
    done
fi
