#!/bin/sh
# Switches a host off by IPMI, for [fence] in controller.toml: exit status 0 only once its BMC says that it is off.
# The BMC of gpu-01 is gpu-01-bmc here; user and password are in /etc/holdfast/bmc (user on the first line).
set -eu
bmc="$HOLDFAST_HOST-bmc"
user=$(sed -n 1p /etc/holdfast/bmc)
IPMI_PASSWORD=$(sed -n 2p /etc/holdfast/bmc)
export IPMI_PASSWORD
power() { ipmitool -I lanplus -H "$bmc" -U "$user" -E chassis power "$@"; }

power off || true # it may be off already; what counts is what the BMC says
for _ in 1 2 3 4 5 6 7 8 9 10; do
    case "$(power status)" in
    *"is off") echo "$bmc says that the power is off"; exit 0 ;;
    esac
    sleep 2
done
echo "$bmc still says that the power is on"
exit 1
