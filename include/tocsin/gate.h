/* tocsin/gate.h - may a checkpoint be published, and is it still what was saved?
 *
 * The digests of a checkpoint are the digest of every whole tensor and the hash of everything else
 * in it, by name. They are gathered piece by piece, in any order and on any number of ranks: pieces
 * of a tensor add up (docs/digest.md), so a checkpoint that was cut otherwise has the same digests.
 * Beside the checkpoint they are a file (docs/formats/checkpoint-digests.md).
 *
 * Threads: an object belongs to one thread at a time.
 */
#ifndef TOCSIN_GATE_H
#define TOCSIN_GATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tocsin/status.h>
#include <tocsin/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the gate -------------------------------------------------------------------------------- */

typedef enum tocsin_gate_mode {
    TOCSIN_GATE_VOTE, /* gradients and weights passed at this step */
    TOCSIN_GATE_AUDIT /* and a replay did */
} tocsin_gate_mode;

typedef enum tocsin_gate_state {
    TOCSIN_GATE_CANDIDATE,  /* all is well, but nobody could vote: there is no second replica */
    TOCSIN_GATE_VERIFIED,   /* published after all checks of its mode */
    TOCSIN_GATE_QUARANTINED /* not published */
} tocsin_gate_state;

/* "vote", "audit"; "candidate", "verified", "quarantined". */
TOCSIN_API const char *tocsin_gate_mode_name(tocsin_gate_mode mode);
TOCSIN_API const char *tocsin_gate_state_name(tocsin_gate_state state);

/* What is known when a checkpoint lies staged. A check has passed if its last pass was at `step`.
 * Before the first step there are no gradients to check. */
typedef struct tocsin_gate_evidence {
    tocsin_gate_mode mode;
    int64_t step;                                      /* the last finished one; 0: none yet */
    int64_t gradients_step, weights_step, replay_step; /* of the last pass; -1: never */
    uint32_t replicas;   /* the fewest among which a tensor was voted; 1: nobody could vote */
    uint64_t differing;  /* entries of the staged checkpoint that are not what was to be saved */
    uint64_t unreadable; /* ranks that could not read back what they had written */
} tocsin_gate_evidence;

#define TOCSIN_GATE_REASON_BYTES 256
/* The state that follows, and why, in one sentence ("" for VERIFIED). */
TOCSIN_API tocsin_gate_state tocsin_gate_decide(const tocsin_gate_evidence *evidence,
                                                char reason[TOCSIN_GATE_REASON_BYTES]);

/* Give what lies at `staged` the name `path`, durably. A file replaces a file at once. So does a
 * folder a folder where the file system can exchange two names; elsewhere there is a moment without
 * the old and without the new one. A replaced folder is at `staged` afterwards (*replaced).
 * Errors: E_IO, E_NOT_FOUND, E_MEMORY. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_gate_publish(const char *staged, const char *path,
                                                               bool *replaced, tocsin_error *error);

/* ---- digests of a checkpoint ------------------------------------------------------------------
 */

#define TOCSIN_CHECKPOINT_ENTRIES_MAX    (1u << 22)
#define TOCSIN_CHECKPOINT_NAME_BYTES_MAX 4096
#define TOCSIN_CHECKPOINT_FILE_BYTES_MAX (1u << 30)

typedef struct tocsin_checkpoint_digests tocsin_checkpoint_digests;

/* Under which circumstances it was saved. */
typedef struct tocsin_checkpoint_origin {
    tocsin_gate_mode mode;
    tocsin_gate_state state; /* never QUARANTINED in a file */
    int64_t step;
    uint32_t replicas;
} tocsin_checkpoint_origin;

TOCSIN_API TOCSIN_MUST_CHECK tocsin_status
tocsin_checkpoint_digests_new(tocsin_checkpoint_digests **digests, tocsin_error *error);
TOCSIN_API void tocsin_checkpoint_digests_free(tocsin_checkpoint_digests *digests);

TOCSIN_API tocsin_checkpoint_origin
tocsin_checkpoint_digests_origin(const tocsin_checkpoint_digests *digests);
TOCSIN_API void tocsin_checkpoint_digests_set_origin(tocsin_checkpoint_digests *digests,
                                                     tocsin_checkpoint_origin origin);
TOCSIN_API size_t tocsin_checkpoint_digests_count(const tocsin_checkpoint_digests *digests);
/* How many of the tensors were voted on, piece for piece. */
TOCSIN_API size_t tocsin_checkpoint_digests_voted(const tocsin_checkpoint_digests *digests);

/* Add a tensor, or a piece of one: its digest in the whole's coordinates. `voted`: it is one that
 * replicas agreed on. Pieces must not overlap: what two of them hold is counted twice, and the
 * tensor is not complete then. Errors: E_ARGUMENT (not the dtype or shape of the pieces before, a
 * name too long, as tocsin_tensor_digest), E_LIMIT, E_MEMORY. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_checkpoint_digests_add_tensor(
    tocsin_checkpoint_digests *digests, const char *name, const tocsin_tensor_view *piece,
    tocsin_digest digest, bool voted, tocsin_error *error);

/* Add what is no tensor, as a text that is the same for the same value. Adding it again is an error
 * unless it is the same. Errors: E_ARGUMENT, E_LIMIT, E_MEMORY. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status
tocsin_checkpoint_digests_add_value(tocsin_checkpoint_digests *digests, const char *name,
                                    const char *text, size_t bytes, tocsin_error *error);

/* Add all that `other` has, as if its pieces had been added here. Errors: the same. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status
tocsin_checkpoint_digests_merge(tocsin_checkpoint_digests *digests,
                                const tocsin_checkpoint_digests *other, tocsin_error *error);

/* The first tensor by name of which not every element was added exactly once; NULL: none. */
TOCSIN_API const char *
tocsin_checkpoint_digests_incomplete(const tocsin_checkpoint_digests *digests);

/* As the text of the file, canonical: the same for the same content. *text ends in a 0; release it
 * with tocsin_checkpoint_text_free. Incomplete ones can be written and parsed: ranks exchange them.
 * Errors: E_MEMORY, E_LIMIT; of parse also E_FORMAT (where: `where`), E_VERSION. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_checkpoint_digests_write(
    const tocsin_checkpoint_digests *digests, char **text, size_t *bytes, tocsin_error *error);
TOCSIN_API void tocsin_checkpoint_text_free(char *text);
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status
tocsin_checkpoint_digests_parse(const char *text, size_t bytes, const char *where,
                                tocsin_checkpoint_digests **digests, tocsin_error *error);

/* The file. Reading refuses an incomplete one (E_FORMAT), saving replaces it at once. Errors: as
 * above, E_NOT_FOUND, E_IO. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_checkpoint_digests_read(
    const char *path, tocsin_checkpoint_digests **digests, tocsin_error *error);
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_checkpoint_digests_save(
    const tocsin_checkpoint_digests *digests, const char *path, tocsin_error *error);

/* ---- comparison -------------------------------------------------------------------------------
 */

/* X(number, NAME, "name in JSON"). */
#define TOCSIN_CHECKPOINT_DIFFERENCE_TABLE(X)                                                      \
    X(0, MISSING, "missing")                                                                       \
    X(1, EXTRA, "extra")                                                                           \
    X(2, RENAMED, "renamed")                                                                       \
    X(3, FORM, "form")                                                                             \
    X(4, INCOMPLETE, "incomplete")                                                                 \
    X(5, CONTENT, "content")

typedef enum tocsin_checkpoint_difference_kind {
#define X(number, name, text) TOCSIN_CHECKPOINT_##name = number,
    TOCSIN_CHECKPOINT_DIFFERENCE_TABLE(X)
#undef X
} tocsin_checkpoint_difference_kind;

typedef struct tocsin_checkpoint_difference {
    tocsin_checkpoint_difference_kind kind;
    const char *name; /* as it was saved; of EXTRA as it was found */
    const char *text; /* one sentence */
    /* Of CONTENT: exactly one 32-bit word differs, in this element, by these bits of the word. */
    bool one_word;
    uint32_t ndim;
    int64_t index[TOCSIN_NDIM_MAX];
    uint32_t set, cleared;
} tocsin_checkpoint_difference;

typedef struct tocsin_checkpoint_differences {
    const tocsin_checkpoint_difference *items; /* by name; missing ones, extra ones last */
    size_t count;
} tocsin_checkpoint_differences;

/* How `found` differs from `saved`. Release with _free. Errors: E_MEMORY. */
TOCSIN_API TOCSIN_MUST_CHECK tocsin_status tocsin_checkpoint_digests_compare(
    const tocsin_checkpoint_digests *saved, const tocsin_checkpoint_digests *found,
    tocsin_checkpoint_differences **differences, tocsin_error *error);
TOCSIN_API void tocsin_checkpoint_differences_free(tocsin_checkpoint_differences *differences);
TOCSIN_API const char *tocsin_checkpoint_difference_name(tocsin_checkpoint_difference_kind kind);

#ifdef __cplusplus
}
#endif
#endif
