#!/bin/bash
# What init becomes: inside.sh TREE MODULES TEST…; a machine with cgroup v2 and nothing of version 1, which runs the tests.
set -e
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8
export HOLDFAST_REQUIRE=root,mount,cgroup,memcg,pids
tree=$1 modules=$2
shift 2
mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts none /dev/pts
mount -t tmpfs none /dev/shm
mkdir -p /lib/modules && mount --bind "$modules" /lib/modules
mount -t tmpfs none /run
if [ "${tree#/tmp/}" = "$tree" ]; then mount -t tmpfs none /tmp; fi
mount -t cgroup2 none /sys/fs/cgroup
ip link set lo up
hostname kernel
cd "$tree"
echo "Linux $(uname -r) is up"
.venv/bin/python -m pytest -n 0 -p no:cacheprovider --color=no -ra "$@" </dev/null || status=$?
echo "pytest ended with ${status:-0}"
busybox poweroff -f
