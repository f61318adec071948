#!/bin/sh
# After removal. Settings, certificates and state stay; a purge deletes what can be had again, and says what is left.
set -e
[ -d /run/systemd/system ] && systemctl daemon-reload || true
if [ "$1" = purge ]; then
    # The link by which an admin had the unit begin at boot; until now a new installation would have gone on so.
    rm -f /etc/systemd/system/multi-user.target.wants/@package@.service
    case @package@ in
        holdfast-agent)
            rm -f /etc/holdfast/agent.toml /etc/holdfast/agent.pem /etc/holdfast/agent.key
            rm -rf --one-file-system /var/lib/holdfast/agent
            left="/var/log/holdfast, the output of jobs"
            ;;
        holdfast-controller)
            left="/var/lib/holdfast/controller, the cluster's CA and the log of all jobs, and /etc/holdfast"
            ;;
    esac
    rmdir --ignore-fail-on-non-empty /var/lib/holdfast /etc/holdfast 2>/dev/null || true
    [ -z "$left" ] || echo "@package@: left for you to delete: $left"
fi
