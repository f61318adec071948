#!/bin/sh
# Switches a host off by IPMI, for [fence] in controller.toml: exit status 0 only once its BMC says that it is off.
# The BMC of gpu-01 is gpu-01-bmc here; user and password are in /etc/holdfast/bmc (user on the first line), a file that
# the account holdfast may read.
set -eu
bmc="$HOLDFAST_HOST-bmc"
user=$(sed -n 1p /etc/holdfast/bmc)
IPMI_PASSWORD=$(sed -n 2p /etc/holdfast/bmc)
export IPMI_PASSWORD
# A BMC that is gone holds it up for 10 s each time, and not for 20.
power() { ipmitool -I lanplus -N 2 -R 2 -H "$bmc" -U "$user" -E chassis power "$@" 2>&1 || true; }

for _ in 1 2 3 4 5 6 7 8 9 10; do
    said=$(power status)
    echo "$bmc: $(echo "$said" | tail -n 1)" # if this is the last time, the controller tells it
    case "$said" in
    *"is off") exit 0 ;;
    esac
    power off >/dev/null
    sleep 2
done
exit 1
