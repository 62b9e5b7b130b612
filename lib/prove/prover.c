/* prover.c - kinds of operators over both plans, and the memo of their executions.
 *
 * A kind is interned by a text that both plans share ("silu", "4:rope|5:theta=0x1.38p+13|[b s
 * d^] -> ..."), so that atoms of the parallel plan meet those of the logical one. The memo is an
 * open-addressing table over one array of words; keys are compared in full.
 */
#include "prove/prover.h"

#include <assert.h>

/* ---- kinds ----------------------------------------------------------------------------------- */

/* Texts of the user's are preceded by their length: whatever stands in them, different kinds have
 * different texts. */
static void append_counted(const tocsin_plan *plan, uint32_t id, tocsin_string *text)
{
    size_t bytes;
    const char *counted = tocsin_intern_text(&plan->strings, id, &bytes);
    tocsin_string_printf(text, "%zu:", bytes);
    tocsin_string_append(text, counted, bytes);
}

static void append_attribute(const tocsin_plan *plan, const tocsin_attribute *one,
                             tocsin_string *text)
{
    tocsin_string_append_char(text, '|');
    append_counted(plan, one->key, text);
    tocsin_string_append_char(text, '=');
    switch ((tocsin_attribute_kind)one->kind) {
    case TOCSIN_ATTRIBUTE_INTEGERS:
        for (uint32_t k = 0; k < one->count; k++)
            tocsin_string_printf(text, "%lld,", (long long)one->integers[k]);
        break;
    case TOCSIN_ATTRIBUTE_REAL:
        tocsin_string_printf(text, "%a", one->real);
        break;
    case TOCSIN_ATTRIBUTE_TEXT:
        tocsin_string_append_char(text, '"');
        append_counted(plan, one->text, text);
        break;
    }
}

static void kind_text(const tocsin_plan *plan, const tocsin_plan_op *op,
                      const tocsin_signature *signature, tocsin_string *text)
{
    const tocsin_attribute_set set = plan->attribute_sets.items[op->attributes];
    if (op->code == TOCSIN_OPERATOR_CALL)
        append_counted(plan, op->name, text);
    else
        tocsin_string_append_text(text, tocsin_plan_text(plan, op->name));
    for (uint32_t k = 0; k < set.count; k++)
        append_attribute(plan, &set.items[k], text);
    if (op->code == TOCSIN_OPERATOR_CALL && signature != NULL)
        tocsin_string_printf(text, "|%s", signature->text);
}

/* The kind's number: the atoms' operator_key. 0: out of memory. */
static uint32_t intern_kind(tocsin_prover *prover, const tocsin_plan *plan,
                            const tocsin_plan_op *op)
{
    tocsin_string text = {0};
    const tocsin_signature *signature = NULL;
    if (op->signature != TOCSIN_PLAN_NONE)
        signature = &plan->signatures.items[op->signature];
    else if (tocsin_operators[op->code].signature[0] != '\0')
        signature = &prover->table_signatures[op->code];
    kind_text(plan, op, signature, &text);
    uint32_t number = 0;
    if (text.status == TOCSIN_OK)
        number = tocsin_intern_put(&prover->kind_texts, tocsin_string_text(&text), text.bytes);
    tocsin_string_free(&text);
    if (number == 0)
        return 0;
    while (prover->kinds.count < number)
        if (!TOCSIN_VEC_PUSH(&prover->kinds, (tocsin_kind){.code = TOCSIN_OPERATOR_COUNT}))
            return 0;
    tocsin_kind *kind = &prover->kinds.items[number - 1];
    if (kind->code == TOCSIN_OPERATOR_COUNT)
        *kind = (tocsin_kind){.code = op->code,
                              .name = tocsin_plan_text(plan, op->name),
                              .plan = plan,
                              .attributes = op->attributes,
                              .signature = signature};
    return number;
}

uint32_t tocsin_prover_key(tocsin_prover *prover, const char *format, ...)
{
    char text[128];
    va_list arguments;
    va_start(arguments, format);
    const int bytes = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    assert(bytes > 0 && (size_t)bytes < sizeof text);
    return tocsin_intern_put(&prover->kind_texts, text, (size_t)bytes);
}

/* The kind of every op of a plan. */
static bool find_kinds(tocsin_prover *prover, tocsin_side side)
{
    const tocsin_plan *plan = prover->plan[side];

    prover->op_kind[side] = tocsin_alloc((plan->ops.count + 1) * sizeof(uint32_t));
    if (prover->op_kind[side] == NULL)
        return false;
    for (size_t i = 0; i < plan->ops.count; i++) {
        const tocsin_plan_op *op = &plan->ops.items[i];
        const uint32_t words[4] = {op->code, op->name, op->attributes, op->signature};
        const uint32_t local = tocsin_intern_put(&prover->local_kinds[side], words, sizeof words);
        if (local == 0)
            return false;
        if (local > prover->local_kind_numbers[side].count) {
            const uint32_t number = intern_kind(prover, plan, op);
            if (number == 0 || !TOCSIN_VEC_PUSH(&prover->local_kind_numbers[side], number))
                return false;
        }
        prover->op_kind[side][i] = prover->local_kind_numbers[side].items[local - 1];
    }
    return true;
}

static tocsin_status parse_table(tocsin_prover *prover, tocsin_error *error)
{
    for (int code = 0; code < TOCSIN_OPERATOR_COUNT; code++) {
        const char *text = tocsin_operators[code].signature;
        if (text[0] != '\0')
            TOCSIN_TRY(
                tocsin_signature_parse(text, strlen(text), &prover->table_signatures[code], error));
    }
    return TOCSIN_OK;
}

tocsin_status tocsin_prover_init(tocsin_prover *prover, const tocsin_plan *logical,
                                 const tocsin_plan *parallel, tocsin_error *error)
{
    *prover = (tocsin_prover){.plan = {logical, parallel}, .size = {1, 1}};
    prover->universe = tocsin_universe_new();
    if (prover->universe == NULL)
        return tocsin_error_memory(error);
    TOCSIN_TRY(parse_table(prover, error));
    if (!find_kinds(prover, TOCSIN_LOGICAL) || !find_kinds(prover, TOCSIN_PARALLEL))
        return tocsin_error_memory(error);
    return TOCSIN_OK;
}

void tocsin_prover_free(tocsin_prover *prover)
{
    for (int side = 0; side < 2; side++) {
        tocsin_free(prover->op_kind[side]);
        tocsin_intern_free(&prover->local_kinds[side]);
        TOCSIN_VEC_FREE(&prover->local_kind_numbers[side]);
    }
    tocsin_universe_free(prover->universe);
    tocsin_intern_free(&prover->kind_texts);
    TOCSIN_VEC_FREE(&prover->kinds);
    tocsin_map_free(&prover->masked_indices);
    tocsin_map_free(&prover->row_indices);
    tocsin_map_free(&prover->masked_values);
    tocsin_free(prover->memo.slots);
    TOCSIN_VEC_FREE(&prover->memo.words);
    tocsin_arena_free(&prover->arena);
    *prover = (tocsin_prover){0};
}

/* ---- memo ------------------------------------------------------------------------------------ */

/* An entry: words of the key, the key's words, output count, outputs. */
enum { KEY_WORDS_MAX = 4096 };

static uint32_t write_key(const tocsin_execution *run, uint32_t *key)
{
    uint32_t count = 0;
    if (run->input_count + 4 > KEY_WORDS_MAX / 2)
        return 0;
    key[count++] = run->kind;
    key[count++] = run->op != TOCSIN_PLAN_NONE;
    key[count++] = run->input_count;
    memcpy(key + count, run->inputs, run->input_count * sizeof key[0]);
    count += run->input_count;
    for (uint32_t j = 0; j < run->output_count; j++) {
        const uint32_t words = 2U * run->output_ndim[j];
        if (count + words + 1 > KEY_WORDS_MAX)
            return 0;
        key[count++] = run->output_ndim[j];
        if (words > 0)
            memcpy(key + count, run->output_shapes[j], words * sizeof key[0]);
        count += words;
    }
    return count;
}

static bool grow(tocsin_memo *memo)
{
    const size_t capacity = memo->capacity == 0 ? 4096 : memo->capacity * 2;
    uint64_t *slots = tocsin_zalloc(capacity, sizeof *slots);
    if (slots == NULL)
        return false;
    for (size_t i = 0; i < memo->capacity; i++) {
        if (memo->slots[i] == 0)
            continue;
        size_t slot = memo->slots[i] >> 32 & (capacity - 1);
        while (slots[slot] != 0)
            slot = (slot + 1) & (capacity - 1);
        slots[slot] = memo->slots[i];
    }
    tocsin_free(memo->slots);
    memo->slots = slots;
    memo->capacity = capacity;
    return true;
}

static uint32_t hash_of(const uint32_t *key, uint32_t count)
{
    return (uint32_t)(tocsin_hash64(key, count * sizeof *key, 0) >> 32);
}

static const uint32_t *entry_at(const tocsin_memo *memo, size_t slot)
{
    return memo->words.items + (uint32_t)memo->slots[slot] - 1;
}

/* The slot of the key: where it is or would be. */
static size_t slot_of(const tocsin_memo *memo, const uint32_t *key, uint32_t count, uint32_t hash)
{
    size_t slot = hash & (memo->capacity - 1);
    for (; memo->slots[slot] != 0; slot = (slot + 1) & (memo->capacity - 1)) {
        if (memo->slots[slot] >> 32 != hash)
            continue;
        const uint32_t *entry = entry_at(memo, slot);
        if (entry[0] == count && memcmp(entry + 1, key, count * sizeof *key) == 0)
            break;
    }
    return slot;
}

/* Remember a result; without memory it is simply not remembered. */
static void remember(tocsin_memo *memo, const uint32_t *key, uint32_t count, uint32_t hash,
                     const tocsin_execution *run)
{
    if ((memo->count + 1) * 2 > memo->capacity && !grow(memo))
        return;
    if (memo->words.count > UINT32_MAX / 2 ||
        !TOCSIN_VEC_RESERVE(&memo->words, (size_t)count + run->output_count + 1))
        return;
    const size_t slot = slot_of(memo, key, count, hash);
    if (memo->slots[slot] != 0)
        return;
    memo->slots[slot] = (uint64_t)hash << 32 | (memo->words.count + 1);
    uint32_t *entry = memo->words.items + memo->words.count;
    entry[0] = count;
    memcpy(entry + 1, key, count * sizeof *key);
    memcpy(entry + 1 + count, run->outputs, run->output_count * sizeof *entry);
    memo->words.count += (size_t)count + run->output_count + 1;
    memo->count++;
}

bool tocsin_transfer(tocsin_prover *prover, const tocsin_execution *execution)
{
    uint32_t key[KEY_WORDS_MAX];
    const uint32_t count = write_key(execution, key);
    tocsin_memo *memo = &prover->memo;

    if (count == 0)
        return tocsin_transfer_fresh(prover, execution);
    const uint32_t hash = hash_of(key, count);
    if (memo->capacity > 0) {
        const size_t slot = slot_of(memo, key, count, hash);
        if (memo->slots[slot] != 0) {
            const uint32_t *entry = entry_at(memo, slot);
            memcpy(execution->outputs, entry + 1 + count, execution->output_count * sizeof *entry);
            return true;
        }
    }
    if (!tocsin_transfer_fresh(prover, execution))
        return false; /* refusals are not remembered: they are rare, and reported with their text */
    remember(memo, key, count, hash, execution);
    return true;
}
