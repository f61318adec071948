#!/bin/sh
# After removal. Settings, certificates, the controller's log and workers' output stay; purge says what to delete.
set -e
[ -d /run/systemd/system ] && systemctl daemon-reload || true
if [ "$1" = purge ]; then
    echo "@package@: /etc/holdfast, /var/lib/holdfast and /var/log/holdfast are left; delete them when nothing needs them."
fi
