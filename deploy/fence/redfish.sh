#!/bin/sh
# Switches a host off by Redfish, for [fence] in controller.toml: exit status 0 only once its BMC says that it is off.
# The BMC of gpu-01 is gpu-01-bmc here; /etc/holdfast/bmc.netrc has a line "machine NAME login USER password WORD" for each,
# /etc/holdfast/bmc-ca.pem the CA of their certificates.
set -eu
system="https://$HOLDFAST_HOST-bmc/redfish/v1/Systems/${1:-1}"
ask() { curl --silent --show-error --fail --max-time 10 --netrc-file /etc/holdfast/bmc.netrc --cacert /etc/holdfast/bmc-ca.pem "$@"; }
state() { ask "$system" | tr -d ' \n' | sed -n 's/.*"PowerState":"\([A-Za-z]*\)".*/\1/p'; }

[ "$(state)" = Off ] ||
    ask --header 'Content-Type: application/json' --data '{"ResetType": "ForceOff"}' \
        "$system/Actions/ComputerSystem.Reset" >/dev/null
for _ in 1 2 3 4 5 6 7 8 9 10; do
    if [ "$(state)" = Off ]; then
        echo "$system: PowerState is Off"
        exit 0
    fi
    sleep 2
done
echo "$system: PowerState is $(state)"
exit 1
