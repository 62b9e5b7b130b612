#!/bin/bash
# drain.sh [--do] FOLDER - drain the nodes that the guard of a job names as to be replaced.
#
# For the end of a batch script, or an epilog. FOLDER is that of tocsin.Guard. Without --do it says
# what it would do. Nothing is done where the verdict names nobody, or names a rank only once for a
# transient fault: then requeue, and look at the report. The job needs NODE_NAME=$SLURMD_NODENAME in
# the environment of each rank if its hosts are not called as Slurm calls the nodes.
set -euo pipefail

run=echo
if [ "${1:-}" = --do ]; then
    run=
    shift
fi
folder=${1:?usage: drain.sh [--do] FOLDER}

status=0
report=$("${TOCSIN:-tocsin}" guard report --format json "$folder") || status=$?
if [ "$status" != 1 ]; then # 0 nothing found, 3 no ledger; 2 is an error, and was printed
    exit $((status == 2 ? 2 : 0))
fi

# Names of nodes and why, one a line; what is no name of a node stays out of the command.
nodes=$(python3 -c '
import json, re, sys
report = json.load(sys.stdin)
for each in report["culprits"]:
    if each["replace"] and re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", each["host"]):
        counts = each["rank"], each["persistent"], each["transient"]
        reason = "tocsin: rank %d, %d persistent, %d transient faults" % counts
        print(each["host"], reason, sep="\t")
' <<<"$report" | sort -u -t $'\t' -k 1,1)

if [ -z "$nodes" ]; then
    echo "no node is to be replaced; see: tocsin guard report $folder" >&2
    exit 0
fi
while IFS=$'\t' read -r node reason; do
    $run scontrol update "NodeName=$node" State=DRAIN "Reason=$reason"
done <<<"$nodes"
