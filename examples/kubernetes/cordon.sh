#!/bin/bash
# cordon.sh [--do] FOLDER - cordon and drain the nodes that the guard of a job says to replace.
#
# For what watches the pods of the job and sees one end with 86. FOLDER is that of tocsin.Guard, on
# a volume that it can read. Without --do it says what it would do. Nothing is done where the
# verdict names nobody, or names a rank only once for a transient fault: then let the job restart,
# and look at the report. The pods need NODE_NAME, from the field spec.nodeName, in their
# environment.
set -euo pipefail

run=echo
if [ "${1:-}" = --do ]; then
    run=
    shift
fi
folder=${1:?usage: cordon.sh [--do] FOLDER}

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
    $run kubectl annotate node "$node" --overwrite "tocsin/reason=$reason"
    $run kubectl cordon "$node"
    $run kubectl drain "$node" --ignore-daemonsets --delete-emptydir-data
done <<<"$nodes"
