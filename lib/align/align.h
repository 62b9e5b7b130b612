/* lib/align/align.h - the inside of run-to-run alignment.
 *
 *   boundary.c  events of one process -> the boundaries of one step, by thread
 *   baseline.c  what of their values is compared
 *   mapping.c   boundaries by a map of names between two frameworks (mapping.h, name_map.c)
 *   visit.c     each row of a pairing shown to who follows the comparison
 *   message.c   which rank a send or receive goes to
 *   shard.c     where a piece lies in the whole; whether pieces tile it
 *   whole.c     the ranks of a run as if they were one process
 *   pairing.c   which boundary of one run belongs to which of the other (pairing.h, band.c)
 *   parting.c   two processes step by step: what is equal, and the first point that differs;
 *               of it cause.c says whether the difference arose there, gap.c why a boundary has no
 *               partner, identity.c what a boundary is called, excuse.c whether it is to
 *               blame, cone.c how far it spread
 *   frontier.c  which ranks parted by themselves, and which by what they received
 *   align.c     processes of two runs matched by rank; pivot.c what is shown of a difference,
 *               outcome.c the result (aligner.h)
 *
 * Data flows in this order. All names of both runs are in one table, so that equal texts have equal
 * ids.
 */
#ifndef TOCSIN_LIB_ALIGN_H
#define TOCSIN_LIB_ALIGN_H

#include <tocsin/align.h>
#include <tocsin/stability.h>

#include "align/pairing.h"

#define TOCSIN_ALIGN_WINDOW_MAX   (UINT32_C(1) << 24) /* boundaries of one step of one thread */
#define TOCSIN_ALIGN_THREADS_MAX  1024
#define TOCSIN_ALIGN_PIVOTS_MAX   64
#define TOCSIN_ALIGN_GAPS_MAX     64
#define TOCSIN_ALIGN_UNSTABLE_MAX 64

/* ---- boundary.c ---------------------------------------------------------------------------- */

/* An open call around a boundary; lives as long as the window. */
typedef struct tocsin_call_chain {
    uint32_t operation, module, site;       /* texts; module 0: it is no module's */
    const struct tocsin_call_chain *around; /* NULL: none */
} tocsin_call_chain;

/* One of the tensors that were put together to a boundary by a map of names. */
typedef struct tocsin_boundary_part {
    uint32_t name;
    int64_t begin; /* its first row in the whole, or in each group of it */
    int64_t rows;  /* there */
} tocsin_boundary_part;

/* What a rank holds of a boundary's tensor. */
typedef struct tocsin_shard {
    int64_t rank;
    uint32_t shape, offset; /* sizes, as bytes; 0: all of it */
} tocsin_shard;

#define TOCSIN_TILES_MAX (1u << 16) /* of one boundary */

typedef struct tocsin_tile { /* tile.c: some rows of a boundary's tensor */
    struct tocsin_tile *next;
    uint32_t axis;
    int64_t first, rows;
    tocsin_digest digest; /* in the coordinates of the whole */
} tocsin_tile;

typedef struct tocsin_boundary {
    uint32_t name, attribute, operation, phase; /* texts */
    uint32_t shape;                             /* sizes, as bytes */
    uint32_t site;                              /* text */
    const char *text; /* of what is no tensor; lives as long as the window. NULL: a tensor, None */
    uint64_t time_ns;
    uint64_t point; /* call << 2 | moment: those of one point have no order among themselves */
    const tocsin_call_chain *chain; /* the calls it was read in, innermost first; or NULL */
    uint32_t micro_batch;           /* of the step, from 1; 0: it belongs to none */
    uint64_t course;                /* ascends in the course of a step; 0: outside of calls */
    bool backward;                  /* passes in a backward pass */
    uint8_t dtype, ndim;
    bool present, digested, gradient;
    bool parameter, buffer;
    bool generator, setting; /* they matter only by what follows from them */
    uint8_t rating;          /* of a setting */
    tocsin_digest digest;
    tocsin_statistics statistics;
    uint32_t own; /* text: what this run calls it, if a map gave it another name; else 0 */
    const tocsin_boundary_part *parts; /* of one put together by a map; else NULL */
    uint32_t part_count;
    int64_t group_rows;         /* of all parts, where they alternate by group; else 0 */
    bool exchanged;             /* its part has the axes the other way round */
    bool cut;                   /* recorded as a part of another framework's tensor */
    uint32_t whole, offset;     /* of a piece: shape of the whole and its place in it; else 0 */
    bool replica;               /* all ranks that have it must have the same bits */
    uint32_t partial;           /* text: a reduction over ranks is still to be made; else 0 */
    const tocsin_shard *shards; /* of one composed from ranks; else NULL */
    uint32_t shard_count;
    tocsin_tile *tiles, *last_tile; /* a list that lives as long as the window */
    uint32_t tile_count;
} tocsin_boundary;

typedef struct tocsin_boundary_stream { /* of one thread in one step */
    TOCSIN_VEC(tocsin_align_item) items;
    TOCSIN_VEC(tocsin_boundary) boundaries; /* of each item */
} tocsin_boundary_stream;

typedef enum tocsin_meeting_kind {
    TOCSIN_MEETING_ALL, /* after it each member may depend on each */
    TOCSIN_MEETING_SENT,
    TOCSIN_MEETING_RECEIVED /* the receiver may depend on the sender */
} tocsin_meeting_kind;

/* Communication of a process with others of a group, or with one by a message. */
typedef struct tocsin_meeting {
    tocsin_meeting_kind kind;
    uint32_t group;   /* text */
    uint32_t ordinal; /* of this group in this process, from 0 */
    uint32_t thread;  /* in the window, */
    uint32_t item;    /* and how many boundaries its stream had when it began, with what went in */
    uint64_t call;    /* in which it is made */
} tocsin_meeting;
typedef TOCSIN_VEC(tocsin_meeting) tocsin_meetings;

typedef struct tocsin_boundary_reader tocsin_boundary_reader;
typedef struct tocsin_mapping tocsin_mapping; /* mapping.h */

/* Reads the events of `trace`; all are borrowed. Errors: E_MEMORY. */
TOCSIN_MUST_CHECK tocsin_status tocsin_boundary_reader_new(tocsin_trace *trace,
                                                           tocsin_intern *names,
                                                           const tocsin_align_options *options,
                                                           tocsin_boundary_reader **reader,
                                                           tocsin_error *error);
void tocsin_boundary_reader_free(tocsin_boundary_reader *reader);
/* The boundaries of the next step, valid until the next call; *more is false when there are no
 * further events, also none in this window. */
TOCSIN_MUST_CHECK tocsin_status tocsin_boundary_reader_step(tocsin_boundary_reader *reader,
                                                            bool *more, tocsin_error *error);
size_t tocsin_boundary_reader_stream_count(const tocsin_boundary_reader *reader);
const tocsin_boundary_stream *tocsin_boundary_reader_stream(const tocsin_boundary_reader *reader,
                                                            size_t thread);
/* Of the window, in order. */
const tocsin_meetings *tocsin_boundary_reader_meetings(const tocsin_boundary_reader *reader);
/* Did this window end with the end of a step? */
bool tocsin_boundary_reader_complete(const tocsin_boundary_reader *reader);
uint64_t tocsin_boundary_reader_events(const tocsin_boundary_reader *reader);
int64_t tocsin_boundary_reader_rank(const tocsin_boundary_reader *reader); /* -1: none so far */

/* What a boundary is: the id of its name, role, call, phase and moment. 0: out of memory. */
uint32_t tocsin_boundary_symbol(const tocsin_boundary *boundary, tocsin_intern *names);
/* The item of a boundary: value and form; the symbol is the caller's. false: out of memory. */
TOCSIN_MUST_CHECK bool tocsin_boundary_make_item(const tocsin_boundary *boundary,
                                                 const tocsin_align_options *options,
                                                 tocsin_intern *names, uint32_t symbol,
                                                 tocsin_align_item *item);

/* ---- message.c ------------------------------------------------------------------------------ */

#define TOCSIN_MESSAGE_NAME_BYTES 96

/* Does the function send or receive, or a call in it? */
bool tocsin_message_is_call(const char *function);
/* What both ends call the message of this ENTER, in a process of this rank. false: the call is no
 * message, or its partner is not known. */
bool tocsin_message_name(const tocsin_trace *trace, const tocsin_event *event, int64_t rank,
                         tocsin_meeting_kind *kind, char text[TOCSIN_MESSAGE_NAME_BYTES]);

/* ---- shard.c ------------------------------------------------------------------------------- */

/* Is value v of the event one of those that place a piece? */
bool tocsin_shard_is_place(const tocsin_trace *trace, const tocsin_event *event, uint32_t v);
/* Fill in `whole`, `offset` and `partial` of the boundary of a piece, whose shape is known. One
 * that is all of its tensor is no piece. false: out of memory. */
TOCSIN_MUST_CHECK bool tocsin_shard_read(const tocsin_trace *trace, const tocsin_event *event,
                                         tocsin_intern *names, tocsin_boundary *boundary);
/* One number of interned sizes; 0 where there is none. */
int64_t tocsin_shard_axis(const tocsin_intern *names, uint32_t sizes, uint32_t axis);

typedef struct tocsin_box {
    uint32_t ndim, member; /* member: the caller's */
    int64_t begin[TOCSIN_NDIM_MAX], size[TOCSIN_NDIM_MAX];
} tocsin_box;

typedef enum tocsin_tiling {
    TOCSIN_TILING_EXACT,
    TOCSIN_TILING_INCOMPLETE,
    TOCSIN_TILING_OVERLAPS
} tocsin_tiling;

/* The box of a piece; false: it is empty. */
bool tocsin_shard_box(const tocsin_intern *names, const tocsin_boundary *boundary, tocsin_box *box);
/* By place; equal ones by member. */
void tocsin_boxes_sort(tocsin_box *boxes, size_t count);
bool tocsin_box_equals(const tocsin_box *a, const tocsin_box *b);
/* Do sorted boxes, equal ones counting once, tile the whole? At least one axis; none is empty. */
tocsin_tiling tocsin_boxes_tile(const tocsin_box *boxes, size_t count, const int64_t *whole,
                                uint32_t ndim);
/* A number for the pieces of parameters of a process's first step; 0: there are none. */
TOCSIN_MUST_CHECK tocsin_status tocsin_shard_layout(const char *path, uint64_t *layout,
                                                    tocsin_error *error);

/* ---- baseline.c ---------------------------------------------------------------------------- */

/* What of the digest is compared; zeros: nothing. */
void tocsin_baseline_words(const tocsin_align_options *options, const tocsin_boundary *boundary,
                           uint64_t words[3]);
/* What of the text is. */
const char *tocsin_baseline_text(const tocsin_align_options *options,
                                 const tocsin_boundary *boundary);
/* Is such a boundary looked at? */
bool tocsin_baseline_looks(const tocsin_align_options *options, tocsin_role role, const char *name,
                           const char *attribute);
/* Of two boundaries with equal hashes: are they the same? Always, without a tolerance. */
bool tocsin_baseline_near(const tocsin_align_options *options, const tocsin_boundary *a,
                          const tocsin_boundary *b);

/* ---- visit.c ------------------------------------------------------------------------------- */

/* Show the rows of a pairing to the options' visitor, if there is one. `where`: process, rank,
 * thread and step. Errors: the visitor's. */
TOCSIN_MUST_CHECK tocsin_status tocsin_align_visit_rows(
    const tocsin_align_options *options, const tocsin_intern *names, const tocsin_align_pair *where,
    const tocsin_boundary_stream *a, const tocsin_boundary_stream *b, const tocsin_pairing *pairing,
    tocsin_error *error);

/* ---- identity.c ----------------------------------------------------------------------------- */

#define TOCSIN_MOMENT_MASK 3u /* of a boundary's point */

/* Append what a boundary is called in rules, lists and maps: docs/align.md. */
void tocsin_boundary_id(const tocsin_intern *names, const tocsin_boundary *boundary,
                        tocsin_string *id);
/* Which one of its symbol it is within its micro-batch of the step, from 1. */
uint32_t tocsin_boundary_ordinal(const tocsin_boundary_stream *stream, uint32_t at);

/* ---- cause.c -------------------------------------------------------------------------------- */

/* One thread's step of both runs, paired. */
typedef struct tocsin_paired_step {
    const tocsin_boundary_stream *a, *b;
    const uint32_t *partner; /* of each item of a */
    const tocsin_intern *names;
    const tocsin_align_options *options;
    int64_t step;
} tocsin_paired_step;

typedef enum tocsin_pair_state {
    TOCSIN_PAIR_UNKNOWN, /* no partner, or a value that was not read */
    TOCSIN_PAIR_EQUAL,
    TOCSIN_PAIR_DIFFERENT
} tocsin_pair_state;

tocsin_pair_state tocsin_pair_state_of(const tocsin_paired_step *pair, uint32_t at);

/* Did the difference arise at this boundary of a, or is it only seen there? *source becomes the
 * item of a that differs already and from which it follows, or NONE. */
tocsin_align_cause tocsin_align_cause_find(const tocsin_paired_step *pair, uint32_t at,
                                           uint32_t *source);
/* The last boundary before `at`, of another point, that is equal; or NONE. */
uint32_t tocsin_align_cause_last_equal(const tocsin_paired_step *pair, uint32_t at);
/* ---- whole.c ------------------------------------------------------------------------------- */

#define TOCSIN_WHOLE_RANKS_MAX    65536
#define TOCSIN_WHOLE_REPLICAS_MAX 16

/* Two ranks that hold the same part of a tensor, and not the same bits. */
typedef struct tocsin_replicas_found {
    tocsin_boundary a, b; /* without texts */
    int64_t step;         /* the first */
    int64_t rank_a, rank_b;
    uint64_t count; /* of steps and places */
} tocsin_replicas_found;

typedef struct tocsin_whole_account {
    uint64_t boundaries; /* composed from several ranks */
    uint64_t incomparable[TOCSIN_INCOMPARABLE_COUNT];
    TOCSIN_VEC(tocsin_replicas_found) replicas; /* at most TOCSIN_WHOLE_REPLICAS_MAX */
} tocsin_whole_account;

/* A process, or the processes of a run step by step as if they were one. */
typedef struct tocsin_whole tocsin_whole;

/* The traces ascend by rank; `compose` is true if there are several. All are borrowed but the list.
 * Errors: E_LIMIT (more than TOCSIN_WHOLE_RANKS_MAX), E_MEMORY. */
TOCSIN_MUST_CHECK tocsin_status tocsin_whole_new(tocsin_trace *const *traces, size_t count,
                                                 bool compose, tocsin_intern *names,
                                                 const tocsin_align_options *options,
                                                 tocsin_whole **whole, tocsin_error *error);
void tocsin_whole_free(tocsin_whole *whole);
/* As of tocsin_boundary_reader. A step that not all ranks have is no further step. */
TOCSIN_MUST_CHECK tocsin_status tocsin_whole_step(tocsin_whole *whole, bool *more,
                                                  tocsin_error *error);
size_t tocsin_whole_stream_count(const tocsin_whole *whole);
const tocsin_boundary_stream *tocsin_whole_stream(const tocsin_whole *whole, size_t thread);
const tocsin_meetings *tocsin_whole_meetings(const tocsin_whole *whole); /* composed: none */
bool tocsin_whole_complete(const tocsin_whole *whole);
uint64_t tocsin_whole_events(const tocsin_whole *whole);
int64_t tocsin_whole_rank(const tocsin_whole *whole); /* composed: -1 */
const tocsin_whole_account *tocsin_whole_get_account(const tocsin_whole *whole);

/* ---- parting.c ----------------------------------------------------------------------------- */

#define TOCSIN_ALIGN_CONDITIONS_MAX 256

typedef struct tocsin_tile_pair { /* that differs */
    uint32_t axis;
    int64_t first, rows;
    tocsin_digest a, b;
} tocsin_tile_pair;

typedef struct tocsin_tiles_found {
    const tocsin_tile_pair *pairs;
    size_t count, compared;
} tocsin_tiles_found;

/* Two boundaries that differ, with what their windows would take along. */
typedef struct tocsin_difference_found {
    tocsin_boundary a, b; /* texts and chains copied into the arena */
    tocsin_difference difference;
    uint32_t ordinal;
    tocsin_align_cause cause;
    const char *source, *last_equal; /* ids, or "" */
    tocsin_tiles_found tiles;
} tocsin_difference_found;

typedef struct tocsin_recomputed_found { /* a: computed again, b: the first time */
    tocsin_difference_found difference;
    int64_t step;
    bool in_a;
} tocsin_recomputed_found;
#define TOCSIN_ALIGN_RECOMPUTED_MAX 16

typedef struct tocsin_gap_found {
    tocsin_align_gap gap;
    uint32_t symbol;
} tocsin_gap_found;

typedef struct tocsin_excuse_used {
    size_t index; /* in the map of unstable boundaries, or among the rules */
    int64_t step; /* of the first difference */
    uint64_t count;
} tocsin_excuse_used;
typedef TOCSIN_VEC(tocsin_excuse_used) tocsin_excuses;

/* The comparison of two processes. */
typedef struct tocsin_parting {
    tocsin_align_rank rank;
    TOCSIN_VEC(tocsin_difference_found) found; /* of the first point that differs, by thread */
    TOCSIN_VEC(tocsin_gap_found) gaps;
    TOCSIN_VEC(tocsin_align_condition) conditions; /* each once, where it first differs */
    TOCSIN_VEC(tocsin_meeting) meetings; /* of the first run; `thread`, `item` are not used */
    bool meetings_cut;                   /* there were more */
    tocsin_excuses unstable;             /* each boundary once */
    tocsin_excuses accepted;             /* by rule; the last ones may be missing */
    tocsin_map rule_of;                  /* symbol -> which rule accepts it (excuse.c) */
    tocsin_align_recompute recompute[2]; /* of a and b */
    TOCSIN_VEC(tocsin_recomputed_found) recomputed; /* that differ: the first ones */
    TOCSIN_VEC(tocsin_align_cone_step) cone_steps;
    TOCSIN_VEC(tocsin_align_reached) reached;
    tocsin_map reached_names; /* name -> how often it differs */
    uint64_t step_differing;  /* in this step so far, excused ones apart */
    bool differed;            /* a compared pair was unlike, be it a pivot or not */
    size_t parted; /* meetings that it had come through when it parted; SIZE_MAX: it did not */
    bool origin;   /* frontier.c: it parted by itself */
    uint64_t events;
} tocsin_parting;

/* The comparison while it goes on: what its parts share. */
typedef struct tocsin_comparison {
    tocsin_whole *a, *b;
    tocsin_intern *names;
    tocsin_arena *arena;
    const tocsin_align_options *options;
    tocsin_mapping *mapping; /* NULL: names are as they are */
    size_t process;          /* number of this pair */
    tocsin_parting *parting;
    int64_t step;                        /* of a */
    TOCSIN_VEC(tocsin_boundary) earlier; /* settings of steps that were skipped */
    tocsin_error *error;
} tocsin_comparison;

/* Read both and compare. Texts of what is found live in `arena`; `mapping`: between the
 * names of both, or NULL; `process`: the number of this pair. Errors: E_LIMIT, E_MEMORY, those of
 * reading, and the visitor's. */
TOCSIN_MUST_CHECK tocsin_status tocsin_parting_find(tocsin_whole *a, tocsin_whole *b,
                                                    tocsin_intern *names, tocsin_arena *arena,
                                                    const tocsin_align_options *options,
                                                    tocsin_mapping *mapping, size_t process,
                                                    tocsin_parting *parting, tocsin_error *error);
void tocsin_parting_free(tocsin_parting *parting);

/* ---- resume.c ------------------------------------------------------------------------------ */

/* Pass over the first steps of a, as the options say. Errors: E_MEMORY, and those of reading. */
TOCSIN_MUST_CHECK tocsin_status tocsin_resume_skip(tocsin_comparison *comparison);
/* The last setting of that name in them, or NULL. */
const tocsin_boundary *tocsin_resume_setting(const tocsin_comparison *comparison, uint32_t name);

/* ---- rules.c ------------------------------------------------------------------------------- */

#define TOCSIN_ALIGN_RULE_TEXTS 7
/* Where the texts of a rule stand, in the order of the file's members. */
void tocsin_align_rule_texts(tocsin_align_rule *rule, const char **texts[TOCSIN_ALIGN_RULE_TEXTS]);

/* ---- gap.c ----------------------------------------------------------------------------------- */

/* A boundary that has no partner: item `at` of a, or of b. Alike ones are counted. false: out of
 * memory. */
TOCSIN_MUST_CHECK bool tocsin_gap_add(const tocsin_comparison *comparison,
                                      const tocsin_paired_step *pair, uint32_t at, bool in_a);

/* ---- own_name.c ---------------------------------------------------------------------------- */

/* Fill in `name`, `index` and `ndim` of a side. false: out of memory. */
TOCSIN_MUST_CHECK bool tocsin_align_own_place(tocsin_arena *arena, const tocsin_intern *names,
                                              const tocsin_boundary *boundary,
                                              const tocsin_align_pivot *pivot,
                                              tocsin_align_side *side);

/* ---- setting.c ------------------------------------------------------------------------------ */

/* Of the event that states a setting. */
tocsin_rating tocsin_setting_rating(const tocsin_trace *trace, const tocsin_event *event);
/* Put the last of `count` > 0 conditions in its place: settings first, by rating; else as found. A
 * setting that another rank has in the same way is dropped. Returns how many there are now. */
size_t tocsin_conditions_order(tocsin_align_condition *conditions, size_t count);

/* Two boundaries that differ, with a copy of what lives no longer than the window. false: out of
 * memory. */
TOCSIN_MUST_CHECK bool tocsin_difference_make(const tocsin_comparison *comparison,
                                              const tocsin_boundary *a, const tocsin_boundary *b,
                                              tocsin_difference_found *found);

/* ---- prefix.c ---------------------------------------------------------------------------------
 */

/* The next boundary of the identical prefix; nothing happens unless a certificate is asked for. */
void tocsin_prefix_add(const tocsin_comparison *comparison, const tocsin_boundary *boundary);

/* ---- recompute.c ----------------------------------------------------------------------------- */

/* Compare what a process computed again in this step with the first time. false: out of memory. */
TOCSIN_MUST_CHECK bool tocsin_recompute_check(const tocsin_comparison *comparison,
                                              const tocsin_whole *whole, bool in_a);

/* ---- excuse.c -------------------------------------------------------------------------------- */

/* Is the difference of this pair known not to repeat, or accepted by a rule? `count`: it is counted
 * there. false: out of memory. */
TOCSIN_MUST_CHECK bool tocsin_excuse_find(const tocsin_comparison *comparison,
                                          const tocsin_paired_step *pair, uint32_t at, bool count,
                                          bool *excused);

/* Every rule with what the partings found it to accept, into `result`. Texts are copied. false: out
 * of memory. */
TOCSIN_MUST_CHECK bool tocsin_excuse_list(const tocsin_align_rules *rules,
                                          const tocsin_parting *partings, size_t count,
                                          tocsin_arena *arena, tocsin_align_result *result);

/* ---- cone.c ---------------------------------------------------------------------------------- */

#define TOCSIN_ALIGN_CONE_STEPS_MAX   64
#define TOCSIN_ALIGN_CONE_REACHED_MAX 256

/* A differing pair from the first point on. false: out of memory. */
TOCSIN_MUST_CHECK bool tocsin_cone_add(const tocsin_comparison *comparison,
                                       const tocsin_paired_step *pair, uint32_t at);
/* A step is over in which so many pairs were compared. false: out of memory. */
TOCSIN_MUST_CHECK bool tocsin_cone_end_step(const tocsin_comparison *comparison, uint64_t compared);
/* The cone of one that has parted, copied. false: out of memory. */
TOCSIN_MUST_CHECK bool tocsin_cone_keep(const tocsin_parting *parting, tocsin_arena *arena,
                                        tocsin_align_cone *cone);

/* ---- frontier.c ---------------------------------------------------------------------------- */

/* Decide `origin` of each: a process that parted after a meeting into which another one came that
 * was parted already may have received it. Errors: E_MEMORY. */
TOCSIN_MUST_CHECK tocsin_status tocsin_frontier_find(tocsin_parting *partings, size_t count,
                                                     tocsin_error *error);

/* ---- stability.c (tocsin/stability.h, continued) --------------------------------------------- */

/* The next repeat is compared with the first. */
void tocsin_stability_begin(tocsin_stability *stability);
/* This boundary differs in it; `differs` does not count. false: out of memory. */
TOCSIN_MUST_CHECK bool tocsin_stability_note(tocsin_stability *stability,
                                             const tocsin_unstable_boundary *boundary);
/* Where a boundary of these texts stands; SIZE_MAX: it is stable. false: out of memory. */
TOCSIN_MUST_CHECK bool tocsin_stability_find(tocsin_stability *stability,
                                             const tocsin_unstable_boundary *boundary,
                                             size_t *index);

/* ---- tile.c ---------------------------------------------------------------------------------- */

/* Is this state a tile of the one before it? */
bool tocsin_tile_is(const tocsin_trace *trace, const tocsin_event *event);
/* Hang it on its boundary; one that does not fit is left out. false: out of memory. */
TOCSIN_MUST_CHECK bool tocsin_tile_add(const tocsin_trace *trace, const tocsin_intern *names,
                                       const tocsin_event *event, tocsin_boundary *boundary,
                                       tocsin_arena *arena);
/* The tiles that differ; none if the two are cut otherwise. false: out of memory. */
TOCSIN_MUST_CHECK bool tocsin_tiles_differ(const tocsin_boundary *a, const tocsin_boundary *b,
                                           tocsin_arena *arena, tocsin_tiles_found *found);
/* As they stand in the result; `words` an element. false: out of memory. */
TOCSIN_MUST_CHECK bool tocsin_tiles_show(const tocsin_difference_found *found,
                                         const tocsin_intern *names, uint32_t words,
                                         tocsin_arena *arena, tocsin_align_pivot *pivot);

#endif
