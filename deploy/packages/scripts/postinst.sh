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
        systemctl try-restart "$unit"
    done
fi
