#!/bin/sh
# Switches a host off by Redfish, for [fence] in controller.toml: exit status 0 only once its BMC says that it is off.
# The BMC of gpu-01 is gpu-01-bmc here; /etc/holdfast/bmc.netrc has a line "machine NAME login USER password WORD" for each,
# /etc/holdfast/bmc-ca.pem the CA of their certificates. The account holdfast may read both.
set -eu
system="https://$HOLDFAST_HOST-bmc/redfish/v1/Systems/${1:-1}"
ask() { curl --silent --show-error --fail --max-time 10 --netrc-file /etc/holdfast/bmc.netrc --cacert /etc/holdfast/bmc-ca.pem "$@" 2>&1; }

asked=
for _ in 1 2 3 4 5 6 7 8 9 10; do
    said=$(ask "$system") || true
    power=$(echo "$said" | tr -d ' \n' | sed -n 's/.*"PowerState":"\([A-Za-z]*\)".*/\1/p')
    # If this is the last time, the controller tells it: the state, or why there is none.
    if [ "$power" ]; then echo "$system: PowerState is $power"; else echo "$said" | head -n 1; fi
    [ "$power" != Off ] || exit 0
    # Once: there are BMCs that begin anew with each.
    [ "$asked" ] || ! ask --header 'Content-Type: application/json' --data '{"ResetType": "ForceOff"}' \
        "$system/Actions/ComputerSystem.Reset" >/dev/null || asked=yes
    sleep 2
done
exit 1
