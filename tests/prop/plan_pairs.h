/* tests/prop/plan_pairs.h - small pairs of a logical and a parallel plan, made by hand around what
 * is easy to get wrong. */
#ifndef TOCSIN_TESTS_PLAN_PAIRS_H
#define TOCSIN_TESTS_PLAN_PAIRS_H

#include <stdbool.h>

typedef struct plan_pair {
    const char *name;
    bool equal;
    const char *logical, *parallel;
} plan_pair;

#define PAIR_LOGICAL  "tocsin-plan 1\nmesh one=1\nrole one=0\n"
#define PAIR_PARALLEL "tocsin-plan 1\nmesh tp=2\ngroup tp = (tp=0) (tp=1)\n"

#define PAIR_LOOKUP_LOGICAL                                                                        \
    PAIR_LOGICAL "in %e:float32[6,3] = e\nin %i:int64[4,4] = i\nsegment s\n"                       \
                 "%x:float32[4,4,3] = embedding(%e, %i)\nout other x = %x\nend\n"

/* A look-up in a table of 6 rows of which each rank has 3; MASK makes %m1 of the mask %m. */
#define PAIR_LOOKUP_ROLE(tp, lo, hi, shift, mask)                                                  \
    "role tp=" tp "\nin %e:float32[3,3] = e[" lo " : 3, 0 : 3]\n"                                  \
    "in %i:int64[4,4] = i[0 : 4, 0 : 4]\nsegment s\n"                                              \
    "%lo:int64[] = full() {value=" lo "}\n%hi:int64[] = full() {value=" hi "}\n"                   \
    "%by:int64[] = full() {value=" shift "}\n"                                                     \
    "%a:bool[4,4] = lt(%i, %lo)\n%b:bool[4,4] = ge(%i, %hi)\n%m:bool[4,4] = or(%a, %b)\n"          \
    "%j:int64[4,4] = sub(%i, %by)\n%k:int64[4,4] = masked_fill(%j, %m) {value=0}\n"                \
    "%r:float32[4,4,3] = embedding(%e, %k)\n" mask "%q:bool[4,4,1] = view(%m1) {shape=[4,4,1]}\n"  \
    "%z:float32[4,4,3] = masked_fill(%r, %q) {value=0.0}\n"                                        \
    "%x:float32[4,4,3] = all_reduce(%z) {op=sum} group=tp\n"                                       \
    "out other x[0 : 4, 0 : 4, 0 : 3] = %x\nend\n"

#define PAIR_ROWS                                                                                  \
    "in %g:float32[4,3] = g[0 : 4, 0 : 3]\nin %i:int64[4] = i[0 : 4]\nsegment s\n"                 \
    "%t:float32[3,3] = embedding_backward(%g, %i) {rows=3}\n"

#define PAIR_SQUARE(tp, start)                                                                     \
    "role tp=" tp "\nin %x:float32[2,4] = x[" start " : 2, 0 : 4]\n"                               \
    "in %w:float32[4,2] = x[0 : 4, 0 : 2]\nsegment s\n"                                            \
    "%y:float32[2,4] = permute(%w) {dims=[1,0]}\n%z:float32[2,4] = mul(%x, %y)\n"                  \
    "out other z[" start " : 2, 0 : 4] = %z\nend\n"

#define PAIR_MAXIMUM(tp, start, how)                                                               \
    "role tp=" tp "\nin %x:float32[2,3] = x[" start " : 2, 0 : 3]\nsegment s\n"                    \
    "%p:float32[3] = amax(%x) {dims=[0]}\n%m:float32[3] = all_reduce(%p) {op=" how                 \
    "} group=tp\nout other m[0 : 3] = %m\nend\n"

#define PAIR_SOFTMAX(tp, start)                                                                    \
    "role tp=" tp "\nin %x:float32[4,3] = x[0 : 4, " start " : 3]\nsegment s\n"                    \
    "%y:float32[4,3] = softmax(%x) {dim=1}\nout other y[0 : 4, " start " : 3] = %y\nend\n"

#define PAIR_POSITIONS(tp, start, first, end)                                                      \
    "role tp=" tp "\nin %x:float32[3] = x[" start " : 3]\nsegment s\n"                             \
    "%i:float32[3] = arange() {start=" first ", end=" end "}\n%y:float32[3] = mul(%x, %i)\n"       \
    "out other y[" start " : 3] = %y\nend\n"

#define PAIR_ROPE "sig=\"[s d^] [s e^] -> [s d^] linear=0\""
#define PAIR_ROTATION(tp, start, first)                                                            \
    "role tp=" tp "\nin %q:float32[3,4] = q[" start " : 3, 0 : 4]\n"                               \
    "in %f:float32[3,2] = f[" first " : 3, 0 : 2]\nsegment s\n"                                    \
    "%y:float32[3,4] = rope(%q, %f) " PAIR_ROPE "\nout other y[" start " : 3, 0 : 4] = %y\nend\n"

static const plan_pair plan_pairs[] = {
    {"look-up by rows", true, PAIR_LOOKUP_LOGICAL,
     PAIR_PARALLEL PAIR_LOOKUP_ROLE("0", "0", "3", "0", "%m1:bool[4,4] = identity(%m)\n")
         PAIR_LOOKUP_ROLE("1", "3", "6", "3", "%m1:bool[4,4] = identity(%m)\n")},
    {"look-up by rows with a transposed mask", false, PAIR_LOOKUP_LOGICAL,
     PAIR_PARALLEL PAIR_LOOKUP_ROLE("0", "0", "3", "0",
                                    "%m1:bool[4,4] = permute(%m) {dims=[1,0]}\n")
         PAIR_LOOKUP_ROLE("1", "3", "6", "3", "%m1:bool[4,4] = permute(%m) {dims=[1,0]}\n")},
    {"look-up by rows with the mask of the first line", false, PAIR_LOOKUP_LOGICAL,
     PAIR_PARALLEL PAIR_LOOKUP_ROLE("0", "0", "3", "0",
                                    "%m0:bool[1,4] = slice(%m) {dim=0, start=0, end=1}\n"
                                    "%m1:bool[4,4] = expand(%m0) {shape=[4,4]}\n")
         PAIR_LOOKUP_ROLE("1", "3", "6", "3",
                          "%m0:bool[1,4] = slice(%m) {dim=0, start=0, end=1}\n"
                          "%m1:bool[4,4] = expand(%m0) {shape=[4,4]}\n")},
    {"look-up by rows with a bound too large", false, PAIR_LOOKUP_LOGICAL,
     PAIR_PARALLEL PAIR_LOOKUP_ROLE("0", "0", "3", "0", "%m1:bool[4,4] = identity(%m)\n")
         PAIR_LOOKUP_ROLE("1", "3", "5", "3", "%m1:bool[4,4] = identity(%m)\n")},
    {"look-up by rows without a shift", false, PAIR_LOOKUP_LOGICAL,
     PAIR_PARALLEL PAIR_LOOKUP_ROLE("0", "0", "3", "0", "%m1:bool[4,4] = identity(%m)\n")
         PAIR_LOOKUP_ROLE("1", "3", "6", "4",
                          "%m1:bool[4,4] = identity(%m)\n")}, /* The local table of a gradient: its
                                                                 rows have to be shifted as well. */
    {"gradient of a table, of the rows [0, 3) on both ranks", false,
     PAIR_LOGICAL "in %g:float32[4,3] = g\nin %i:int64[4] = i\nsegment s\n"
                  "%t:float32[6,3] = embedding_backward(%g, %i) {rows=6}\nout grad e = %t\nend\n",
     PAIR_PARALLEL "role tp=0\n" PAIR_ROWS "out grad e[0 : 3, 0 : 3] = %t\nend\n"
                   "role tp=1\n" PAIR_ROWS "out grad e[3 : 3, 0 : 3] = %t\nend\n"},
    {"the columns of another rank", false,
     PAIR_LOGICAL "in %x:float32[4,4] = x\nsegment s\n%y:float32[4,4] = permute(%x) {dims=[1,0]}\n"
                  "%z:float32[4,4] = mul(%x, %y)\nout other z = %z\nend\n",
     PAIR_PARALLEL PAIR_SQUARE("0", "0") PAIR_SQUARE("1", "2")},
    {"maximum of both parts", true,
     PAIR_LOGICAL "in %x:float32[4,3] = x\nsegment s\n%m:float32[3] = amax(%x) {dims=[0]}\n"
                  "out other m = %m\nend\n",
     PAIR_PARALLEL PAIR_MAXIMUM("0", "0", "max") PAIR_MAXIMUM("1", "2", "max")},
    {"sum of partial maxima", false,
     PAIR_LOGICAL "in %x:float32[4,3] = x\nsegment s\n%m:float32[3] = amax(%x) {dims=[0]}\n"
                  "out other m = %m\nend\n",
     PAIR_PARALLEL PAIR_MAXIMUM("0", "0", "sum") PAIR_MAXIMUM("1", "2", "sum")},
    {"maximum of one part twice", false,
     PAIR_LOGICAL "in %x:float32[4,3] = x\nsegment s\n%m:float32[3] = amax(%x) {dims=[0]}\n"
                  "out other m = %m\nend\n",
     PAIR_PARALLEL PAIR_MAXIMUM("0", "0", "max") PAIR_MAXIMUM("1", "0", "max")},
    {"softmax over a part", false,
     PAIR_LOGICAL "in %x:float32[4,6] = x\nsegment s\n%y:float32[4,6] = softmax(%x) {dim=1}\n"
                  "out other y = %y\nend\n",
     PAIR_PARALLEL PAIR_SOFTMAX("0", "0") PAIR_SOFTMAX("1", "3")},
    {"positions that begin at 0 on both ranks", false,
     PAIR_LOGICAL "in %x:float32[6] = x\nsegment s\n%i:float32[6] = arange() {start=0, end=6}\n"
                  "%y:float32[6] = mul(%x, %i)\nout other y = %y\nend\n",
     PAIR_PARALLEL PAIR_POSITIONS("0", "0", "0", "3") PAIR_POSITIONS("1", "3", "0", "3")},
    {"positions that begin where the rank does", true,
     PAIR_LOGICAL "in %x:float32[6] = x\nsegment s\n%i:float32[6] = arange() {start=0, end=6}\n"
                  "%y:float32[6] = mul(%x, %i)\nout other y = %y\nend\n",
     PAIR_PARALLEL PAIR_POSITIONS("0", "0", "0", "3") PAIR_POSITIONS("1", "3", "3", "6")},
    {"a rotation with its table from the start", false,
     PAIR_LOGICAL "in %q:float32[6,4] = q\nin %f:float32[6,2] = f\nsegment s\n"
                  "%y:float32[6,4] = rope(%q, %f) " PAIR_ROPE "\nout other y = %y\nend\n",
     PAIR_PARALLEL PAIR_ROTATION("0", "0", "0") PAIR_ROTATION("1", "3", "0")},
    {"a rotation with its own part of the table", true,
     PAIR_LOGICAL "in %q:float32[6,4] = q\nin %f:float32[6,2] = f\nsegment s\n"
                  "%y:float32[6,4] = rope(%q, %f) " PAIR_ROPE "\nout other y = %y\nend\n",
     PAIR_PARALLEL PAIR_ROTATION("0", "0", "0") PAIR_ROTATION("1", "3", "3")},
};

#endif
