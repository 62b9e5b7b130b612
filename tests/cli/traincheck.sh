#!/bin/bash
# TrainCheck's traces and invariants, in and out, as its user would do it.
. "${TOCSIN_SOURCE:?}/tests/cli/transcript.bash" || exit 1

# sample RANK STEP VALUE: the weight of a rank, as the sampler writes it
sample() {
    printf '{"var_name":"w","var_type":"torch.nn.Parameter","process_id":%d,"thread_id":%d,' \
        $((10 + $1)) $((10 + $1))
    printf '"meta_vars":{"step":%d,"_DATA_PARALLEL_RANK":%d},"type":"state_change",' "$2" "$1"
    printf '"attributes":{"data":%d,"grad":null,"dtype":"torch.float32","shape":[2],' "$3"
    printf '"nbytes":8},"time":%d}\n' "$2"
}
mkdir traces
for rank in 0 1; do
    for step in 0 1 2 3; do
        sample $rank $step $((7 * step + (step == 3 ? rank : 0)))
    done >traces/trace_VAR_1${rank}_1$rank.log
done
head -c 100 traces/trace_VAR_10_10.log >traces/trace_VAR_10_11.log
# invariant TEXT RELATION PARAMS GROUP CLAUSES: a line of TrainCheck's
invariant() {
    printf '{"text_description":"%s","relation":"%s","params":[%s],' "$1" "$2" "$3"
    printf '"precondition":{"%s":{"inverted":false,"preconditions":[{"clauses":%s}]}},' "$4" "$5"
    printf '"num_positive_examples":4,"num_negative_examples":1}\n'
}
data='{"param_type":"VarTypeParam","var_type":"torch.nn.Parameter","attr_name":"data"}'
other='[{"type":"unequal","prop_name":"process_id","additional_path":"None",'
other+='"prop_dtype":"__import__(\"os\").abort()"}]'
{
    invariant replicas ConsistencyRelation "$data,$data" var "$other"
    invariant periods VarPeriodicChangeRelation '' pre_event '"Unconditional"'
} >invariants.json

expect 0 tocsin import traincheck -o run traces <<'END'
! tocsin: left out: trace_VAR_10_11.log:1: the end of the file is broken off
! tocsin: imported 8 records of 2 processes, 2 with a rank, into run
! tocsin: 1 left out because they are no record
! hint: tocsin infer run -o inv.jsonl, or tocsin check -i invariants.json run
END
expect 2 tocsin import traincheck -o run traces <<'END'
! tocsin: error: the folder exists and is not empty, run
END
expect 2 tocsin import traincheck traces <<'END'
! tocsin: error: tocsin import needs a format, a folder and -o RUN
! hint: tocsin import traincheck -o RUN FOLDER
END
expect 2 tocsin import other -o new traces <<'END'
! tocsin: error: cannot import from 'other'
! hint: tocsin import traincheck -o RUN FOLDER
END
check "the run is as any other" grep -q traincheck.sample <(tocsin dump run)
check "what is not judged is named" grep -q 'not judged: invariants.json:2: periods: its relation' \
    <(tocsin check -i invariants.json run 2>&1)
check "replicas that drift apart are found" grep -q '^step 4, rank 1: TOC001 w: data differs' \
    <(tocsin check -i invariants.json run 2>/dev/null)

expect 0 tocsin export traincheck -o back run <<'END'
! tocsin: exported 2 files into back
END
for rank in 0 1; do
    check "the records are the same" diff traces/trace_VAR_1${rank}_1$rank.log back
done
check "their invariants become ours" tocsin merge invariants.json -o ours.jsonl 2>/dev/null
expect 0 tocsin export traincheck -o theirs.json ours.jsonl <<'END'
! tocsin: 1 invariant in theirs.json
END
check "and theirs again" grep -q '^step 4, rank 1: TOC001 w: data differs' \
    <(tocsin check -i theirs.json run 2>/dev/null)
expect 2 tocsin export traincheck run <<'END'
! tocsin: error: tocsin export needs the format traincheck, a run or invariants, and -o PATH
! hint: tocsin export traincheck -o FOLDER RUN
END
finish
