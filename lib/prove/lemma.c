/* prove/lemma.c - the equations that the transfer rules rest on beyond congruence.
 *
 * Each is a pair of `.plan` texts: the left side is a logical model, the right side may be
 * parallel. tests/prop/test_lemmas.c evaluates both sides over a finite field, and lets the prover
 * prove them. Public function: tocsin_verify_lemmas (tocsin/verify.h).
 */
#include <tocsin/verify.h>

#define ONE    "tocsin-plan 1\nmesh one=1\nrole one=0\n"
#define TWO    "tocsin-plan 1\nmesh tp=2\ngroup tp = (tp=0) (tp=1)\n"
#define RANK_0 "role tp=0\n"
#define RANK_1 "role tp=1\n"

/* ---- reductions ------------------------------------------------------------------------------ */

#define MM_PART(start)                                                                             \
    "in %a:float32[3,4] = a[0 : 3, " start " : 4]\nin %b:float32[4,5] = b[" start                  \
    " : 4, 0 : 5]\nsegment s\n%p:float32[3,5] = mm(%a, %b)\n"                                      \
    "%y:float32[3,5] = all_reduce(%p) {op=sum} group=tp\nout other y[0 : 3, 0 : 5] = %y\nend\n"

#define MEAN_PART(start)                                                                           \
    "in %x:float32[4,3] = x[" start " : 4, 0 : 3]\nsegment s\n"                                    \
    "%p:float32[3] = mean(%x) {dims=[0]}\n%y:float32[3] = all_reduce(%p) {op=avg} group=tp\n"      \
    "out other y[0 : 3] = %y\nend\n"

#define AMAX_PART(start)                                                                           \
    "in %x:float32[5,3] = x[0 : 5, " start " : 3]\nsegment s\n"                                    \
    "%p:float32[5] = amax(%x) {dims=[1]}\n%y:float32[5] = all_reduce(%p) {op=max} group=tp\n"      \
    "out other y[0 : 5] = %y\nend\n"

#define SCATTER_PART(start)                                                                        \
    "in %a:float32[4,3] = a[0 : 4, " start " : 3]\nin %b:float32[3,5] = b[" start                  \
    " : 3, 0 : 5]\nsegment s\n%p:float32[4,5] = mm(%a, %b)\n"                                      \
    "%q:float32[2,5] = reduce_scatter(%p) {dim=0, op=sum} group=tp\n"                              \
    "%y:float32[4,5] = all_gather(%q) {dim=0} group=tp\nout other y[0 : 4, 0 : 5] = %y\nend\n"

#define EXCHANGE_PART(start)                                                                       \
    "in %x:float32[2,6] = x[" start " : 2, 0 : 6]\nsegment s\n"                                    \
    "%p:float32[4,3] = all_to_all(%x) {split_dim=1, join_dim=0} group=tp\n"                        \
    "%q:float32[4,3] = exp(%p)\n"                                                                  \
    "%y:float32[2,6] = all_to_all(%q) {split_dim=0, join_dim=1} group=tp\n"                        \
    "out other y[" start " : 2, 0 : 6] = %y\nend\n"

#define LINEAR_PART(start)                                                                         \
    "in %a:float32[3,4] = a[0 : 3, " start " : 4]\nin %b:float32[4,5] = b[" start                  \
    " : 4, 0 : 5]\nin %w:float32[4,5] = w[0 : 4, 0 : 5]\nsegment s\n"                              \
    "%x:float32[3,5] = mm(%a, %b)\n%p:float32[3,4] = linear(%x, %w)\n"                             \
    "%y:float32[3,4] = all_reduce(%p) {op=sum} group=tp\nout other y[0 : 3, 0 : 4] = %y\nend\n"

#define EQUALS_PART                                                                                \
    "in %a:float32[3,4] = a[0 : 3, 0 : 4]\nsegment s\n%b:float32[3,4] = add(%a, %a, %a)\n"         \
    "%y:float32[3,4] = all_reduce(%b) {op=sum} group=tp\nout other y[0 : 3, 0 : 4] = %y\nend\n"

/* ---- tables and the vocabulary --------------------------------------------------------------- */

#define MASK(type_shape, lo, hi)                                                                   \
    "%lo:int64[] = full() {value=" lo "}\n%hi:int64[] = full() {value=" hi "}\n"                   \
    "%under:bool" type_shape " = lt(%i, %lo)\n%over:bool" type_shape " = ge(%i, %hi)\n"            \
    "%other:bool" type_shape " = or(%under, %over)\n"                                              \
    "%moved:int64" type_shape " = sub(%i, %lo)\n"                                                  \
    "%own:int64" type_shape " = masked_fill(%moved, %other) {value=0}\n"

#define LOOKUP_PART(lo, hi)                                                                        \
    "in %e:float32[3,4] = e[" lo " : 3, 0 : 4]\nin %i:int64[5] = i[0 : 5]\nsegment s\n" MASK(      \
        "[5]", lo, hi) "%rows:float32[5,4] = embedding(%e, %own)\n"                                \
                       "%mask:bool[5,1] = view(%other) {shape=[5,1]}\n"                            \
                       "%part:float32[5,4] = masked_fill(%rows, %mask) {value=0.0}\n"              \
                       "%y:float32[5,4] = all_reduce(%part) {op=sum} group=tp\nout other y[0 : "   \
                       "5, 0 : 4] = %y\nend\n"

#define SCATTER_ROWS_PART(lo, hi)                                                                  \
    "in %g:float32[5,4] = g[0 : 5, 0 : 4]\nin %i:int64[5] = i[0 : 5]\nsegment s\n" MASK(           \
        "[5]", lo, hi) "%mask:bool[5,1] = view(%other) {shape=[5,1]}\n"                            \
                       "%own_g:float32[5,4] = masked_fill(%g, %mask) {value=0.0}\n"                \
                       "%y:float32[3,4] = embedding_backward(%own_g, %own) {rows=3}\n"             \
                       "out grad e[" lo " : 3, 0 : 4] = %y\nend\n"

/* log sum exp - target logit; the target is picked out by comparison with the positions. */
#define ENTROPY_PICK(columns, start, end)                                                          \
    "%at:int64[" columns "] = arange() {start=" start ", end=" end "}\n"                           \
    "%t1:int64[5,1] = view(%t) {shape=[5,1]}\n%hit:bool[5," columns "] = eq(%t1, %at)\n"           \
    "%zero:float32[] = full() {value=0.0}\n"                                                       \
    "%hits:float32[5," columns "] = where(%hit, %x, %zero)\n"

#define ENTROPY_WHOLE                                                                              \
    ONE "in %x:float32[5,6] = x\nin %t:int64[5] = t\nsegment s\n"                                  \
        "%m:float32[5,1] = amax(%x) {dims=[1], keepdim=1}\n%d:float32[5,6] = sub(%x, %m)\n"        \
        "%e:float32[5,6] = exp(%d)\n%s:float32[5,1] = sum(%e) {dims=[1], keepdim=1}\n"             \
        "%l:float32[5,1] = log(%s)\n%z:float32[5,1] = add(%l, %m)\n" ENTROPY_PICK(                 \
            "6", "0", "6") "%h:float32[5,1] = sum(%hits) {dims=[1], keepdim=1}\n%y:float32[5,1] "  \
                           "= sub(%z, %h)\n"                                                       \
                           "out other y = %y\nend\n"

#define ENTROPY_PART(start, end)                                                                   \
    "in %x:float32[5,3] = x[0 : 5, " start " : 3]\nin %t:int64[5] = t[0 : 5]\nsegment s\n"         \
    "%m0:float32[5,1] = amax(%x) {dims=[1], keepdim=1}\n"                                          \
    "%m:float32[5,1] = all_reduce(%m0) {op=max} group=tp\n%d:float32[5,3] = sub(%x, %m)\n"         \
    "%e:float32[5,3] = exp(%d)\n%s0:float32[5,1] = sum(%e) {dims=[1], keepdim=1}\n"                \
    "%s:float32[5,1] = all_reduce(%s0) {op=sum} group=tp\n"                                        \
    "%l:float32[5,1] = log(%s)\n%z:float32[5,1] = add(%l, %m)\n" ENTROPY_PICK(                     \
        "3", start, end) "%h0:float32[5,1] = sum(%hits) {dims=[1], keepdim=1}\n"                   \
                         "%h:float32[5,1] = all_reduce(%h0) {op=sum} group=tp\n%y:float32[5,1] = " \
                         "sub(%z, %h)\n"                                                           \
                         "out other y[0 : 5, 0 : 1] = %y\nend\n"

/* ---- gradients over tokens ------------------------------------------------------------------- */

#define TOKENS                                                                                     \
    "tocsin-plan 1\nmesh dp=2*\nmicrobatches 2\ngroup dp = (dp=all)\nrole\n"                       \
    "in %g:float32[2,3] each = g[dp*4+mb*2 : 2, 0 : 3]\n"                                          \
    "in %x:float32[2,5] each = x[dp*4+mb*2 : 2, 0 : 5]\nsegment fw\n"                              \
    "%gt:float32[3,2] = permute(%g) {dims=[1,0]}\n%p:float32[3,5] = mm(%gt, %x)\n"                 \
    "%w:float32[3,5] keep = accumulate(%p)\nsegment step\n"                                        \
    "%y:float32[3,5] = all_reduce(%w) {op=sum} group=dp\nschedule fw.0 fw.1 step\n"                \
    "out grad w[0 : 3, 0 : 5] = %y\nend\n"

static const tocsin_lemma lemmas[] = {
    {"partial-contraction",
     "contractions over the parts of an axis add up to the contraction over the axis",
     ONE "in %a:float32[3,8] = a\nin %b:float32[8,5] = b\nsegment s\n"
         "%y:float32[3,5] = mm(%a, %b)\nout other y = %y\nend\n",
     TWO RANK_0 MM_PART("0") RANK_1 MM_PART("4")},
    {"partial-contraction-over-symbols",
     "a contraction over tokens is the sum over replicas and micro-batches of those over their own",
     ONE "in %g:float32[8,3] = g\nin %x:float32[8,5] = x\nsegment s\n"
         "%gt:float32[3,8] = permute(%g) {dims=[1,0]}\n%y:float32[3,5] = mm(%gt, %x)\n"
         "out grad w = %y\nend\n",
     TOKENS},
    {"mean-is-scaled-sum", "a mean is the sum divided by the number of elements",
     ONE "in %x:float32[4,3] = x\nsegment s\n%y:float32[3] = mean(%x) {dims=[0]}\n"
         "out other y = %y\nend\n",
     ONE "in %x:float32[4,3] = x\nsegment s\n%s:float32[3] = sum(%x) {dims=[0]}\n"
         "%y:float32[3] = scale(%s) {factor=0.25}\nout other y = %y\nend\n"},
    {"mean-of-means", "the mean of means over equal parts is the mean over the whole",
     ONE "in %x:float32[8,3] = x\nsegment s\n%y:float32[3] = mean(%x) {dims=[0]}\n"
         "out other y = %y\nend\n",
     TWO RANK_0 MEAN_PART("0") RANK_1 MEAN_PART("4")},
    {"maximum-of-maxima", "the maximum of maxima over the parts is the maximum over the whole",
     ONE "in %x:float32[5,6] = x\nsegment s\n%y:float32[5] = amax(%x) {dims=[1]}\n"
         "out other y = %y\nend\n",
     TWO RANK_0 AMAX_PART("0") RANK_1 AMAX_PART("3")},
    {"scatter-then-gather", "reduce_scatter followed by all_gather is all_reduce",
     ONE "in %a:float32[4,6] = a\nin %b:float32[6,5] = b\nsegment s\n"
         "%y:float32[4,5] = mm(%a, %b)\nout other y = %y\nend\n",
     TWO RANK_0 SCATTER_PART("0") RANK_1 SCATTER_PART("3")},
    {"exchange-and-back", "all_to_all moves the split from one dim to another, and back",
     ONE "in %x:float32[4,6] = x\nsegment s\n%y:float32[4,6] = exp(%x)\nout other y = %y\nend\n",
     TWO RANK_0 EXCHANGE_PART("0") RANK_1 EXCHANGE_PART("2")},
    {"row-parallel-look-up",
     "look-ups in the parts of a table, zero for the rows of other parts, add up to the look-up",
     ONE "in %e:float32[6,4] = e\nin %i:int64[5] = i\nsegment s\n"
         "%y:float32[5,4] = embedding(%e, %i)\nout other y = %y\nend\n",
     TWO RANK_0 LOOKUP_PART("0", "3") RANK_1 LOOKUP_PART("3", "6")},
    {"row-parallel-look-up-gradient",
     "the gradient of a part of a table is the masked gradient at the shifted rows",
     ONE "in %g:float32[5,4] = g\nin %i:int64[5] = i\nsegment s\n"
         "%y:float32[6,4] = embedding_backward(%g, %i) {rows=6}\nout grad e = %y\nend\n",
     TWO RANK_0 SCATTER_ROWS_PART("0", "3") RANK_1 SCATTER_ROWS_PART("3", "6")},
    {"vocabulary-parallel-entropy",
     "cross-entropy over a split vocabulary: shared maximum, summed exp, summed target logit",
     ENTROPY_WHOLE, TWO RANK_0 ENTROPY_PART("0", "3") RANK_1 ENTROPY_PART("3", "6")},
    {"slice-of-join", "a slice of a join is a part of what was joined",
     ONE
     "in %a:float32[2,3] = a\nin %b:float32[4,3] = b\nsegment s\n"
     "%c:float32[6,3] = cat(%a, %b) {dim=0}\n%y:float32[4,3] = slice(%c) {dim=0, start=2, end=6}\n"
     "%z:float32[4,3] = exp(%y)\nout other z = %z\nend\n",
     ONE "in %b:float32[4,3] = b\nsegment s\n%z:float32[4,3] = exp(%b)\nout other z = %z\nend\n"},
    {"join-of-slices", "the slices of a value, joined in order, are the value",
     ONE "in %x:float32[6,3] = x\nsegment s\n%y:float32[6,3] = exp(%x)\nout other y = %y\nend\n",
     ONE
     "in %x:float32[6,3] = x\nsegment s\n%a:float32[2,3] = slice(%x) {dim=0, start=0, end=2}\n"
     "%b:float32[4,3] = slice(%x) {dim=0, start=2, end=6}\n"
     "%c:float32[6,3] = cat(%a, %b) {dim=0}\n%y:float32[6,3] = exp(%c)\nout other y = %y\nend\n"},
    {"join-of-padded", "padded parts add up to their join",
     ONE "in %a:float32[2,3] = a\nin %b:float32[4,3] = b\nsegment s\n"
         "%y:float32[6,3] = cat(%a, %b) {dim=0}\nout other y = %y\nend\n",
     ONE "in %a:float32[2,3] = a\nin %b:float32[4,3] = b\nsegment s\n"
         "%p:float32[6,3] = pad(%a) {dim=0, before=0, after=4}\n"
         "%q:float32[6,3] = pad(%b) {dim=0, before=2, after=0}\n"
         "%y:float32[6,3] = add(%p, %q)\nout other y = %y\nend\n"},
    {"linear-in-partial-sums", "a linear operator of partial sums gives partial sums",
     ONE "in %a:float32[3,8] = a\nin %b:float32[8,5] = b\nin %w:float32[4,5] = w\nsegment s\n"
         "%x:float32[3,5] = mm(%a, %b)\n%y:float32[3,4] = linear(%x, %w)\n"
         "out other y = %y\nend\n",
     TWO RANK_0 LINEAR_PART("0") RANK_1 LINEAR_PART("4")},
    {"linear-in-multiples", "a factor may be drawn out of a linear operator",
     ONE "in %a:float32[3,4] = a\nin %w:float32[5,4] = w\nsegment s\n"
         "%p:float32[3,5] = linear(%a, %w)\n%y:float32[3,5] = scale(%p) {factor=0.125}\n"
         "out other y = %y\nend\n",
     ONE "in %a:float32[3,4] = a\nin %w:float32[5,4] = w\nsegment s\n"
         "%b:float32[3,4] = scale(%a) {factor=0.5}\n%v:float32[5,4] = scale(%w) {factor=0.25}\n"
         "%y:float32[3,5] = linear(%b, %v)\nout other y = %y\nend\n"},
    {"free-axes-are-sliced", "a slice of an operator's free axis is the operator of the slice",
     ONE "in %a:float32[6,4] = a\nin %w:float32[5,4] = w\nsegment s\n"
         "%p:float32[6,5] = linear(%a, %w)\n%q:float32[6,5] = silu(%p)\n"
         "%y:float32[2,5] = slice(%q) {dim=0, start=3, end=5}\nout other y = %y\nend\n",
     ONE "in %a:float32[6,4] = a\nin %w:float32[5,4] = w\nsegment s\n"
         "%b:float32[2,4] = slice(%a) {dim=0, start=3, end=5}\n%p:float32[2,5] = linear(%b, %w)\n"
         "%y:float32[2,5] = silu(%p)\nout other y = %y\nend\n"},
    {"quotient-is-product", "a / b is a times the reciprocal of b",
     ONE "in %a:float32[3,4] = a\nin %b:float32[3,1] = b\nsegment s\n"
         "%y:float32[3,4] = div(%a, %b)\nout other y = %y\nend\n",
     ONE
     "in %a:float32[3,4] = a\nin %b:float32[3,1] = b\nsegment s\n"
     "%c:float32[3,1] = reciprocal(%b)\n%y:float32[3,4] = mul(%a, %c)\nout other y = %y\nend\n"},
    {"difference-is-sum", "a - b is a + (-1) b, and -a is (-1) a",
     ONE "in %a:float32[3,4] = a\nin %b:float32[3,4] = b\nsegment s\n"
         "%c:float32[3,4] = sub(%a, %b)\n%y:float32[3,4] = exp(%c)\nout other y = %y\nend\n",
     ONE "in %a:float32[3,4] = a\nin %b:float32[3,4] = b\nsegment s\n%m:float32[3,4] = neg(%b)\n"
         "%n:float32[3,4] = scale(%m) {factor=-1.0}\n%o:float32[3,4] = neg(%n)\n"
         "%c:float32[3,4] = add(%o, %a)\n%y:float32[3,4] = exp(%c)\nout other y = %y\nend\n"},
    {"constant-factors", "a product with a constant is a multiple, 1 / c of a constant is constant",
     ONE "in %a:float32[3,4] = a\nsegment s\n%y:float32[3,4] = scale(%a) {factor=0.25}\n"
         "out other y = %y\nend\n",
     ONE "in %a:float32[3,4] = a\nsegment s\n%c:float32[] = full() {value=4.0}\n"
         "%d:float32[] = reciprocal(%c)\n%y:float32[3,4] = mul(%a, %d)\nout other y = %y\nend\n"},
    {"sum-of-equals", "a sum of equal terms is a multiple",
     ONE "in %a:float32[3,4] = a\nsegment s\n%y:float32[3,4] = scale(%a) {factor=6.0}\n"
         "out other y = %y\nend\n",
     TWO RANK_0 EQUALS_PART RANK_1 EQUALS_PART},
};

const tocsin_lemma *tocsin_verify_lemmas(size_t *count)
{
    *count = sizeof lemmas / sizeof lemmas[0];
    return lemmas;
}
