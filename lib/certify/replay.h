/* certify/replay.h - the state of a replay, for replay.c and replay_exchange.c. */
#ifndef TOCSIN_CERTIFY_REPLAY_H
#define TOCSIN_CERTIFY_REPLAY_H

#include "certify/certify.h"

enum { STATE_MAX = 1 << 28 };
#define NOBODY UINT32_MAX
enum { WRITTEN = 1, UNDER_WAY = 2 }; /* the latter until the wait */

typedef struct replay_unit {
    const tocsin_plan_role *role;
    uint32_t role_index, replica;
    uint32_t turn, op;  /* next */
    size_t first_state; /* [micro-batch][value], into states */
    bool queued, sent;
    bool *judged;    /* by segment */
    uint32_t *calls; /* by group */
} replay_unit;

typedef struct replay_member {
    uint32_t unit, op; /* NOBODY: has not come */
    int32_t microbatch;
    uint32_t input, output; /* relations */
} replay_member;

typedef struct replay_gathering {
    uint32_t count, come;
    bool over_replicas;
    replay_member *members;
} replay_gathering;

typedef struct replay_letter {
    replay_member from;
    bool taken;
} replay_letter;

typedef struct replay_mailbox {
    TOCSIN_VEC(replay_letter) items;
    uint32_t taken;
    uint32_t reader; /* waiting unit, or NOBODY */
} replay_mailbox;

typedef struct replay {
    certify_checker *checker;
    const certificate *from;
    const tocsin_plan *plan;
    int side;
    bool each_replica, each_microbatch;
    uint32_t microbatches, replicas;
    TOCSIN_VEC(replay_unit) units;
    uint32_t *unit_of; /* [device * replicas + replica] */
    uint8_t *single;   /* by value of the plan: one for all micro-batches */
    uint8_t *written;  /* states */
    uint32_t *pending; /* states: accumulations to come */
    size_t state_count;
    TOCSIN_VEC(uint32_t) ready;
    TOCSIN_VEC(replay_gathering) gatherings;
    TOCSIN_VEC(replay_mailbox) boxes;
    tocsin_intern meetings; /* (group, call, instance) -> gathering + 1 */
    tocsin_intern channels; /* (source, destination, tag) -> box + 1 */
    tocsin_map partners;    /* (unit, op) -> what it met first, + 1 */
    tocsin_arena arena;
    char *text;
    size_t text_bytes;
} replay;

typedef struct replay_step {
    replay *run;
    uint32_t unit, op_index;
    int32_t microbatch;
    bool judged; /* its facts are to be judged, not only its reads and meetings */
    const tocsin_plan_op *op;
    const uint32_t *inputs, *outputs;
} replay_step;

typedef enum progress { ADVANCE, WAIT } progress;

/* The relation of a value at a micro-batch. */
uint32_t certify_fact(const replay *run, uint32_t unit_index, int32_t microbatch, uint32_t value);
/* What an operator reads: 0 when nothing is known of it. `alias`: it may be under way. */
uint32_t certify_read(const replay *run, uint32_t unit_index, int32_t microbatch, uint32_t value,
                      bool alias);
/* The outputs are there now, or under way. */
void certify_write(const replay_step *now);
/* Is an output one value that every micro-batch writes anew? */
bool certify_is_overwritten(const replay_step *now, uint32_t value);
/* One call, judged when the last member has come. *made: may the unit go on? */
certify_outcome certify_run_collective(const replay_step *now, progress *made);
certify_outcome certify_run_message(const replay_step *now, progress *made);

#endif
