#!/usr/bin/env bash
# A real SLURM of one node, as plain processes of whoever calls: no root, systemd, cgroups or accounting.
#   eval "$(tests/slurm/one-node.sh start DIR)"; snakemake --profile slurm …; tests/slurm/one-node.sh stop DIR
# Three partitions: main, whose jobs are requeued when they are preempted; fragile, whose jobs are cancelled; high,
# which preempts both. Needs slurmctld, slurmd, slurm-client and munge.
set -euo pipefail
command=${1:?start or stop}
mkdir -p "${2:?a directory}"
dir=$(cd "$2" && pwd)
port=${SLURM_NODE_PORT:-16817}
export SLURM_CONF=$dir/slurm.conf PATH=$PATH:/usr/sbin:/sbin

if [ "$command" = stop ]; then
  pids=$(cat "$dir"/{slurmd,slurmctld,munged}.pid 2> /dev/null) || true
  timeout 10 scancel --full --signal=KILL --user="$(id -un)" 2> /dev/null || true
  timeout 10 scontrol shutdown > /dev/null 2>&1 || true
  for pid in $pids; do
    for _ in $(seq 50); do kill "$pid" 2> /dev/null || break; sleep 0.1; done
    kill -9 "$pid" 2> /dev/null || true
  done
  exit 0
fi

mkdir -p "$dir"/{bin,log,spool,state}
mkdir -p -m 700 "$dir/munge"
chmod 755 "$dir"
(umask 077 && head -c 128 /dev/urandom > "$dir/munge/key")
munged --force --key-file="$dir/munge/key" --socket="$dir/munge.socket" --pid-file="$dir/munged.pid" \
  --log-file="$dir/munge/log" --seed-file="$dir/munge/seed" >&2
# A requeued job waits until its old credential has expired: cred_expire. CPUs are pretended, so that jobs overlap.
cat > "$SLURM_CONF" << END
ClusterName=test
SlurmctldHost=$(hostname -s)(127.0.0.1)
SlurmUser=$(id -un)
SlurmdUser=$(id -un)
AuthType=auth/munge
AuthInfo=socket=$dir/munge.socket,cred_expire=5
SlurmctldPort=$port
SlurmdPort=$((port + 1))
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd.pid
SlurmctldLogFile=$dir/log/slurmctld.log
SlurmdLogFile=$dir/log/slurmd.log
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=bf_interval=2,sched_min_interval=500000
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
KillWait=20
ReturnToService=2
SlurmdParameters=config_overrides
NodeName=$(hostname -s) NodeAddr=127.0.0.1 CPUs=${SLURM_NODE_CPUS:-8} RealMemory=1000000 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1
PartitionName=fragile Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=1 PreemptMode=CANCEL
PartitionName=high Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF
END
# Snakemake's job step plugin removes SLURM_CONF, which a cluster has in /etc, before it calls srun.
printf '#!/bin/sh\nSLURM_CONF="%s" exec "%s" "$@"\n' "$SLURM_CONF" "$(command -v srun)" > "$dir/bin/srun"
chmod +x "$dir/bin/srun"
slurmctld -c >&2
slurmd >&2
for _ in $(seq 300); do
  [ "$(timeout 5 sinfo -h -p main -o %t 2> /dev/null)" = idle ] && break
  sleep 0.1
done
timeout 10 sinfo >&2
echo "export SLURM_CONF='$SLURM_CONF' PATH='$dir/bin:$PATH'"
