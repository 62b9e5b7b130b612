#!/bin/bash
# What the guard of a job found, put together, and what a scheduler makes of it. The schedulers'
# commands are stubs that write down how they were called: they are the boundary.
. "${TOCSIN_SOURCE:?}/tests/cli/transcript.bash" || exit 1
export TOCSIN
unset TOCSIN_PYTHON

ledger() { # ledger FILE LINE...
    local file=$1
    shift
    mkdir -p "$(dirname "$file")"
    printf '{"format":"tocsin-guard-ledger","version":1}\n' >"$file"
    printf '%s\n' "$@" >>"$file"
}
finding() { # finding CHECK STEP CAUSE RANK HOST
    printf '{"schema":1,"check":"%s","step":%s,"time":1.0,"cause":"%s","ranks":[%s],"hosts":[%s],' \
        "$1" "$2" "$3" "$4" "$5"
    printf '"devices":[],"tensor":"w","suspect_window":[%s,%s],"action":"stop",' "$2" "$2"
    printf '"text":"it differs"}'
}
once=$(finding weights 7 transient 1 '"n1"')
twice=$(finding weights 9 transient 1 '"n1"')
broken=$(finding replay 8 persistent 2 '"n2"')
nobody=$(finding replay 6 unattributable '' '')
ledger named/rank-0.jsonl "$once" "$broken"
ledger named/rank-1.jsonl "$once" "$broken"
printf '{"schema":1,"che' >>named/rank-1.jsonl
ledger once/rank-0.jsonl "$once"
ledger twice/rank-0.jsonl "$once" "$twice"
ledger nobody/rank-0.jsonl "$nobody"
ledger hostile/rank-0.jsonl "$(finding replay 8 persistent 2 '"n2; rm -rf /"')" \
    "$(finding replay 8 persistent 3 '"--all"')"
ledger clean/rank-0.jsonl
ledger clean/rank-00.jsonl "$once" # the name of no ledger
mkdir empty

expect 1 tocsin guard report named <<'END'
step 7  weights  transient  stop
    it differs
    rank 1 on n1; suspect steps 7 to 7; in 2 ledgers
step 8  replay  persistent  stop
    it differs
    rank 2 on n2; suspect steps 8 to 8; in 2 ledgers
rank 1 on n1: 0 persistent, 1 transient: watch
rank 2 on n2: 1 persistent, 0 transient: replace
named: attributed, 2 findings in 2 ledgers; 1 ends in a line that was being written
END
expect 1 tocsin guard report nobody <<'END'
step 6  replay  unattributable  stop
    it differs
    cannot attribute; suspect steps 6 to 6; in 1 ledger
nobody: cannot attribute, 1 finding in 1 ledger
END
json() { tocsin guard report --format json "$1" | sed 's/,"/,\n"/g'; }
expect 0 json clean <<'END'
{"schema":1,
"folder":"clean",
"verdict":"clean",
"ledgers":1,
"torn":0,
"damaged":0,
"unattributed":0,
"suspect_window":null,
"culprits":[],
"findings":[]}
END
expect 3 tocsin guard report empty <<'END'
empty: clean, 0 findings in 0 ledgers
END
expect 2 tocsin guard report nowhere <<'END'
! tocsin: error: cannot open: No such file or directory, nowhere
END
expect 2 tocsin guard <<'END'
! tocsin: error: tocsin guard takes `report FOLDER` or `verify CHECKPOINT...`
! hint: tocsin guard --help
END

# ---- schedulers --------------------------------------------------------------------------------

mkdir stubs
for command in scontrol kubectl; do
    printf '#!/bin/bash\nprintf "%%s" %s >>called\nprintf " <%%s>" "$@" >>called\necho >>called\n' \
        "$command" >"stubs/$command"
    chmod +x "stubs/$command"
done
PATH=$PWD/stubs:$PATH
slurm=$TOCSIN_SOURCE/examples/slurm/drain.sh kubernetes=$TOCSIN_SOURCE/examples/kubernetes/cordon.sh

expect 0 "$slurm" named <<'END'
scontrol update NodeName=n2 State=DRAIN Reason=tocsin: rank 2, 1 persistent, 0 transient faults
END
check "a dry run calls nobody" test ! -e called
for script in "$slurm" "$kubernetes"; do
    for folder in once nobody hostile; do
        expect 0 "$script" --do "$folder" <<END
! no node is to be replaced; see: tocsin guard report $folder
END
    done
    expect 0 "$script" --do clean </dev/null
    expect 0 "$script" --do empty < <(printf '')
    expect 2 "$script" --do nowhere <<'END'
! tocsin: error: cannot open: No such file or directory, nowhere
END
done
check "nobody is replaced who is not named" test ! -e called
expect 0 "$slurm" --do twice </dev/null
expect 0 "$kubernetes" --do named </dev/null
twice_because="tocsin: rank 1, 0 persistent, 2 transient faults"
because="tocsin: rank 2, 1 persistent, 0 transient faults"
cat >wanted <<END
scontrol <update> <NodeName=n1> <State=DRAIN> <Reason=$twice_because>
kubectl <annotate> <node> <n2> <--overwrite> <tocsin/reason=$because>
kubectl <cordon> <n2>
kubectl <drain> <n2> <--ignore-daemonsets> <--delete-emptydir-data>
END
check "the schedulers' commands" diff -u wanted called

# ---- checkpoints -------------------------------------------------------------------------------

export TOCSIN_PYTHON=$PYTHON
cat >save.py <<'END'
import torch
import tocsin.guard
from tocsin.guard import checkpoint_contents as contents
from tocsin import _core

state = {"w": torch.arange(6.0).view(2, 3), "step": 4}
torch.save(state, "c.pt")
digests = contents.Digests()
for piece in contents.pieces_of_state(state):
    digests.add(piece, piece.name == "w")
_core.checkpoint_digests_set_origin(digests.handle, "vote", "verified", 4, 2)
_core.checkpoint_digests_save(digests.handle, "c.pt.tocsin.json")
torch.save(state, "bare.pt")
state["w"][1, 2] = -5.0
torch.save(state, "other.pt")
END
check "checkpoints are written" env PYTHONPATH="$TOCSIN_BUILD/python" "$PYTHON" save.py
expect 0 tocsin guard verify c.pt <<'END'
c.pt: verified: 3 entries saved at step 4, verified (gate vote, replicas 2, voted on 1)
END
expect 1 tocsin guard verify --against c.pt.tocsin.json other.pt <<'END'
other.pt: differs: 3 entries saved at step 4, verified (gate vote, replicas 2, voted on 1)
  w is not what was saved: one element differs, [1,2], 1 of its bits
END
expect 3 tocsin guard verify bare.pt c.pt <<'END'
bare.pt: undecided: no digests beside it
c.pt: verified: 3 entries saved at step 4, verified (gate vote, replicas 2, voted on 1)
END
expect 2 tocsin guard verify c.pt nowhere.pt <<'END'
c.pt: verified: 3 entries saved at step 4, verified (gate vote, replicas 2, voted on 1)
! tocsin: error: nowhere.pt: no such file or folder
END
cp c.pt.tocsin.json other.pt.tocsin.json
expect 1 tocsin guard verify nowhere.pt other.pt <<'END'
other.pt: differs: 3 entries saved at step 4, verified (gate vote, replicas 2, voted on 1)
  w is not what was saved: one element differs, [1,2], 1 of its bits
! tocsin: error: nowhere.pt: no such file or folder
END
expect 2 bash -c '"$TOCSIN" guard verify c.pt >/dev/full' <<'END'
! tocsin: error: cannot write to the standard output
END
expect 2 tocsin guard verify --nothing c.pt <<'END'
! tocsin: error: unrecognized arguments: --nothing
! hint: tocsin guard verify --help
END
echo 'raise SystemExit("this was run")' >torch.py # as a folder of checkpoints may have one
expect 0 tocsin guard verify c.pt <<'END'
c.pt: verified: 3 entries saved at step 4, verified (gate vote, replicas 2, voted on 1)
END

finish
