/* Any bytes as a certificate of a small pair of plans: an error with a message, or a judgement. The
 * corpus begins with certificates that are accepted, with replicas and micro-batches as symbols and
 * one by one. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tocsin/certify.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char logical_text[] = "tocsin-plan 1\n"
                                   "mesh\n"
                                   "role\n"
                                   "in %x:float32[8,6] = x[0 : 8, 0 : 6]\n"
                                   "in %w:float32[4,6] = w[0 : 4, 0 : 6]\n"
                                   "in %t:float32[10,4] = t[0 : 10, 0 : 4]\n"
                                   "in %i:int64[8] = i[0 : 8]\n"
                                   "segment main\n"
                                   "%y:float32[8,4] = linear(%x, %w)\n"
                                   "%e:float32[8,4] = embedding(%t, %i)\n"
                                   "%z:float32[8,4] = add(%y, %e)\n"
                                   "%a:float32[8,4] = tanh(%z)\n"
                                   "%h:float32[8,2] = slice(%a) {dim=1, start=2, end=4}\n"
                                   "%n:float32[8,2] = neg(%h)\n"
                                   "%l:float32[8,2] = slice(%a) {dim=1, start=0, end=2}\n"
                                   "%r:float32[8,4] = cat(%n, %l) {dim=1}\n"
                                   "%m:float32[8] = amax(%r) {dims=[1], keepdim=0}\n"
                                   "%v:float32[4,2,4] = view(%r) {shape=[4,2,4]}\n"
                                   "%s:float32[] = sum(%v) {dims=[0,1,2], keepdim=0}\n"
                                   "%d:float32[8,6] = permute(%x) {dims=[0,1]}\n"
                                   "%p:float32[6,8] = permute(%d) {dims=[1,0]}\n"
                                   "%g:float32[6,4] = mm(%p, %a)\n"
                                   "out loss loss[] = %s\n"
                                   "out grad w[0 : 6, 0 : 4] = %g\n"
                                   "out other m[0 : 8] = %m\n"
                                   "end\n";

/* tensor, data and micro-batch parallel; a table in shards behind masks */
static const char parallel_text[] = "tocsin-plan 1\n"
                                    "mesh dp=2* tp=2\n"
                                    "microbatches 2\n"
                                    "group tp = (tp=0) (tp=1)\n"
                                    "group all0 = (tp=0 dp=all)\n"
                                    "group all1 = (tp=1 dp=all)\n"
                                    "role tp=0\n"
                                    "in %x:float32[2,3] each = x[dp*4+mb*2 : 2, 0 : 3]\n"
                                    "in %w:float32[4,3] = w[0 : 4, 0 : 3]\n"
                                    "in %t:float32[5,4] = t[0 : 5, 0 : 4]\n"
                                    "in %i:int64[2] each = i[dp*4+mb*2 : 2]\n"
                                    "segment main\n"
                                    "%y1:float32[2,4] = linear(%x, %w)\n"
                                    "%y:float32[2,4] = all_reduce(%y1) {op=sum} group=tp\n"
                                    "%lo:int64[] = full() {shape=[], value=0}\n"
                                    "%hi:int64[] = full() {shape=[], value=5}\n"
                                    "%b:bool[2] = lt(%i, %lo)\n"
                                    "%u:bool[2] = ge(%i, %hi)\n"
                                    "%k:bool[2] = or(%b, %u)\n"
                                    "%j1:int64[2] = add_scalar(%i) {value=0}\n"
                                    "%j:int64[2] = masked_fill(%j1, %k) {value=0}\n"
                                    "%e2:float32[2,4] = embedding(%t, %j)\n"
                                    "%k2:bool[2,1] = view(%k) {shape=[2,1]}\n"
                                    "%e1:float32[2,4] = masked_fill(%e2, %k2) {value=0}\n"
                                    "%e:float32[2,4] = all_reduce(%e1) {op=sum} group=tp\n"
                                    "%z:float32[2,4] = add(%y, %e)\n"
                                    "%a:float32[2,4] = tanh(%z)\n"
                                    "%h:float32[2,2] = slice(%a) {dim=1, start=2, end=4}\n"
                                    "%n:float32[2,2] = neg(%h)\n"
                                    "%l:float32[2,2] = slice(%a) {dim=1, start=0, end=2}\n"
                                    "%r:float32[2,4] = cat(%n, %l) {dim=1}\n"
                                    "%m:float32[2] = amax(%r) {dims=[1], keepdim=0}\n"
                                    "%v:float32[1,2,4] = view(%r) {shape=[1,2,4]}\n"
                                    "%s:float32[] = sum(%v) {dims=[0,1,2], keepdim=0}\n"
                                    "%p:float32[3,2] = permute(%x) {dims=[1,0]}\n"
                                    "%g1:float32[3,4] = mm(%p, %a)\n"
                                    "%g:float32[3,4] keep = accumulate(%g1)\n"
                                    "segment end\n"
                                    "%G:float32[3,4] = all_reduce(%g) {op=sum} group=all0\n"
                                    "schedule main.0 main.1 end\n"
                                    "out loss loss[] = %s fold=sum,sum\n"
                                    "out grad w[0 : 3, 0 : 4] = %G\n"
                                    "out other m[dp*4+mb*2 : 2] = %m\n"
                                    "end\n"
                                    "role tp=1\n"
                                    "in %x:float32[2,3] each = x[dp*4+mb*2 : 2, 3 : 3]\n"
                                    "in %w:float32[4,3] = w[0 : 4, 3 : 3]\n"
                                    "in %t:float32[5,4] = t[5 : 5, 0 : 4]\n"
                                    "in %i:int64[2] each = i[dp*4+mb*2 : 2]\n"
                                    "segment main\n"
                                    "%y1:float32[2,4] = linear(%x, %w)\n"
                                    "%y:float32[2,4] = all_reduce(%y1) {op=sum} group=tp\n"
                                    "%lo:int64[] = full() {shape=[], value=5}\n"
                                    "%hi:int64[] = full() {shape=[], value=10}\n"
                                    "%b:bool[2] = lt(%i, %lo)\n"
                                    "%u:bool[2] = ge(%i, %hi)\n"
                                    "%k:bool[2] = or(%b, %u)\n"
                                    "%j1:int64[2] = add_scalar(%i) {value=-5}\n"
                                    "%j:int64[2] = masked_fill(%j1, %k) {value=0}\n"
                                    "%e2:float32[2,4] = embedding(%t, %j)\n"
                                    "%k2:bool[2,1] = view(%k) {shape=[2,1]}\n"
                                    "%e1:float32[2,4] = masked_fill(%e2, %k2) {value=0}\n"
                                    "%e:float32[2,4] = all_reduce(%e1) {op=sum} group=tp\n"
                                    "%z:float32[2,4] = add(%y, %e)\n"
                                    "%a:float32[2,4] = tanh(%z)\n"
                                    "%h:float32[2,2] = slice(%a) {dim=1, start=2, end=4}\n"
                                    "%n:float32[2,2] = neg(%h)\n"
                                    "%l:float32[2,2] = slice(%a) {dim=1, start=0, end=2}\n"
                                    "%r:float32[2,4] = cat(%n, %l) {dim=1}\n"
                                    "%m:float32[2] = amax(%r) {dims=[1], keepdim=0}\n"
                                    "%v:float32[1,2,4] = view(%r) {shape=[1,2,4]}\n"
                                    "%s:float32[] = sum(%v) {dims=[0,1,2], keepdim=0}\n"
                                    "%p:float32[3,2] = permute(%x) {dims=[1,0]}\n"
                                    "%g1:float32[3,4] = mm(%p, %a)\n"
                                    "%g:float32[3,4] keep = accumulate(%g1)\n"
                                    "segment end\n"
                                    "%G:float32[3,4] = all_reduce(%g) {op=sum} group=all1\n"
                                    "schedule main.0 main.1 end\n"
                                    "out loss loss[] = %s fold=sum,sum\n"
                                    "out grad w[3 : 3, 0 : 4] = %G\n"
                                    "out other m[dp*4+mb*2 : 2] = %m\n"
                                    "end\n";

static tocsin_plan *read_plan(const char *text)
{
    tocsin_plan *plan = NULL;
    tocsin_error error;
    if (tocsin_plan_read_memory(text, strlen(text), "plan", NULL, &plan, &error) != TOCSIN_OK) {
        fprintf(stderr, "%s\n", error.message);
        abort();
    }
    return plan;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static tocsin_plan *logical, *parallel;
    tocsin_certify_result result;
    tocsin_error error = {.message = ""};

    if (logical == NULL) {
        logical = read_plan(logical_text);
        parallel = read_plan(parallel_text);
    }
    const tocsin_status status =
        tocsin_certify_memory(data, size, "fuzz", logical, parallel, &result, &error);
    if (status != TOCSIN_OK ? error.message[0] == 0 : result.accepted != (result.text[0] == 0))
        abort();
    return 0;
}
