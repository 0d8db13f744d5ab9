#!/usr/bin/env bash
#SBATCH --cpus-per-task=8
#SBATCH --mem=16G
#SBATCH --time=24:00:00
#SBATCH --signal=B:TERM@120
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=in-one-allocation.%j.log
# A whole target in one allocation, so that a chain of fifty short skills waits in the queue once and not fifty times:
#   sbatch profiles/slurm/in-one-allocation.sh results/hopper/hausdorff.csv
# From the project's root; options of sbatch come before the script, arguments of Snakemake after it. Two minutes
# before its time is up the trainings save, and the job puts itself back into the queue, until the target is done.
set -uo pipefail
cd "${SLURM_SUBMIT_DIR:?to be submitted with sbatch}"
PATH=$PWD/.venv/bin:$PATH

stopped=
stop() {
  stopped=yes
  kill -TERM -- "-$controller" # its whole group: Snakemake starts nothing more, trainings save
  # Snakemake 9 hangs if it is asked to end while it chooses jobs (its handler waits for a lock that the thread it
  # interrupts holds). Trainings have saved by then, and its locks are removed when the workflow starts again.
  (sleep 60 && kill -KILL -- "-$controller" 2> /dev/null) &
}

set -m # a process group of its own for Snakemake and what it starts
snakemake --cores "${SLURM_CPUS_PER_TASK:-1}" "$@" &
controller=$!
trap stop TERM
wait "$controller"
code=$?
while kill -0 "$controller" 2> /dev/null; do
  wait "$controller"
  code=$?
done
[ "$code" = 0 ] && exit 0
[ -z "$stopped" ] && exit "$code" # an error: to be looked at, not to be repeated
echo "out of time: back into the queue, and then on from the checkpoints"
exec scontrol requeue "$SLURM_JOB_ID"
