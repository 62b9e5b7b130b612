/* proof_store.c - the proof of a plan by parts, as a file of the cache.
 *
 * The first line is the checksum of the rest (XXH3-128, against damage, not against forgery), which
 * is one JSON object. Strings of the cuts are an array, and other places name them by index. A file
 * that is not as it should be is no error: what it would have known is proved again.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "compose/compose.h"

enum { DIGEST_CHARS = 32 };

void tocsin_known_free(tocsin_known *known)
{
    for (size_t r = 0; known->roles != NULL && r < known->cuts.role_count; r++)
        TOCSIN_VEC_FREE(&known->roles[r].contributions);
    for (size_t p = 0; known->parts != NULL && p < known->cuts.part_count; p++)
        tocsin_part_interface_free(&known->parts[p].interface);
    for (size_t k = 0; k < known->assumptions.count; k++)
        tocsin_free(known->assumptions.items[k]);
    for (size_t k = 0; k < known->dead_lines.count; k++)
        tocsin_free(known->dead_lines.items[k]);
    TOCSIN_VEC_FREE(&known->assumptions);
    TOCSIN_VEC_FREE(&known->dead_lines);
    tocsin_free(known->roles);
    tocsin_free(known->parts);
    tocsin_cuts_free(&known->cuts);
    *known = (tocsin_known){0};
}

/* ---- writing --------------------------------------------------------------------------------- */

static void digest_text(tocsin_hash128 digest, char text[DIGEST_CHARS + 1])
{
    snprintf(text, DIGEST_CHARS + 1, "%016llx%016llx", (unsigned long long)digest.high,
             (unsigned long long)digest.low);
}

static void put_digest(tocsin_json *json, tocsin_hash128 digest)
{
    char text[DIGEST_CHARS + 1];
    digest_text(digest, text);
    tocsin_json_text(json, text);
}

static void put_intern(tocsin_json *json, const char *key, const tocsin_intern *table)
{
    tocsin_json_key(json, key);
    tocsin_json_begin_array(json);
    for (uint32_t id = 1; id <= tocsin_intern_count(table); id++) {
        size_t bytes;
        const char *text = tocsin_intern_text(table, id, &bytes);
        tocsin_json_string(json, text, bytes);
    }
    tocsin_json_end_array(json);
}

static void put_words(tocsin_json *json, const char *key, const uint64_t *words, size_t count)
{
    tocsin_json_key(json, key);
    tocsin_json_begin_array(json);
    for (size_t k = 0; k < count; k++)
        tocsin_json_unsigned(json, words[k]);
    tocsin_json_end_array(json);
}

/* [string, is_input, numerator, denominator, base, weight 0, weight 1, base, ...] */
static void put_claim(tocsin_json *json, const tocsin_part_claim *claim)
{
    tocsin_json_begin_array(json);
    tocsin_json_unsigned(json, claim->name);
    tocsin_json_unsigned(json, claim->is_input);
    tocsin_json_integer(json, claim->numerator);
    tocsin_json_integer(json, claim->denominator);
    for (uint32_t d = 0; d < claim->ndim; d++) {
        tocsin_json_integer(json, claim->starts[d].base);
        for (int s = 0; s < TOCSIN_SYMBOL_COUNT; s++)
            tocsin_json_integer(json, claim->starts[d].weight[s]);
    }
    tocsin_json_end_array(json);
}

static void put_role(tocsin_json *json, const tocsin_known_role *role, const tocsin_role_cuts *cuts)
{
    tocsin_json_begin_object(json);
    tocsin_json_key(json, "text");
    put_digest(json, role->text);
    tocsin_json_key(json, "communication");
    put_digest(json, role->communication);
    const uint64_t counts[] = {role->operators, role->executions, role->nodes};
    put_words(json, "counts", counts, TOCSIN_COUNT_OF(counts));
    put_intern(json, "values", &cuts->names);
    tocsin_json_key(json, "claims");
    tocsin_json_begin_array(json);
    for (size_t k = 0; k < cuts->claims.count; k++)
        put_claim(json, &cuts->claims.items[k]);
    tocsin_json_end_array(json);
    tocsin_json_key(json, "messages");
    tocsin_json_begin_array(json);
    for (size_t k = 0; k < cuts->messages.count; k++)
        tocsin_json_unsigned(json, cuts->messages.items[k]);
    tocsin_json_end_array(json);
    tocsin_json_key(json, "parts");
    tocsin_json_begin_array(json);
    for (size_t k = 0; k < role->contributions.count; k++) {
        tocsin_json_unsigned(json, role->contributions.items[k].part);
        put_digest(json, role->contributions.items[k].digest);
    }
    tocsin_json_end_array(json);
    tocsin_json_end_object(json);
}

static void put_part(tocsin_json *json, const tocsin_known_part *part)
{
    const uint64_t counts[] = {part->outputs, part->gradients, part->dead};
    tocsin_json_begin_object(json);
    tocsin_json_key(json, "key");
    put_digest(json, part->key);
    tocsin_json_key(json, "logical");
    put_digest(json, part->logical);
    put_words(json, "counts", counts, TOCSIN_COUNT_OF(counts));
    put_words(json, "imports", part->interface.imports.items, part->interface.imports.count);
    put_words(json, "exports", part->interface.exports.items, part->interface.exports.count);
    put_words(json, "outputs", part->interface.outputs.items, part->interface.outputs.count);
    tocsin_json_end_object(json);
}

static void put_lines(tocsin_json *json, const char *key, char *const *lines, size_t count)
{
    tocsin_json_key(json, key);
    tocsin_json_begin_array(json);
    for (size_t k = 0; k < count; k++)
        tocsin_json_text(json, lines[k]);
    tocsin_json_end_array(json);
}

static void put_known(tocsin_json *json, const tocsin_known *known)
{
    const tocsin_cuts *cuts = &known->cuts;
    tocsin_json_begin_object(json);
    tocsin_json_key(json, "schema");
    tocsin_json_unsigned(json, 1);
    tocsin_json_key(json, "header");
    put_digest(json, known->header);
    tocsin_json_key(json, "logical");
    put_digest(json, known->logical);
    put_intern(json, "keys", &cuts->keys);
    tocsin_json_key(json, "part_of_key");
    tocsin_json_begin_array(json);
    for (size_t k = 0; k < cuts->part_of_key.count; k++)
        tocsin_json_unsigned(json, cuts->part_of_key.items[k]);
    tocsin_json_end_array(json);
    put_intern(json, "strings", &cuts->strings);
    tocsin_json_key(json, "roles");
    tocsin_json_begin_array(json);
    for (size_t r = 0; r < cuts->role_count; r++)
        put_role(json, &known->roles[r], &cuts->roles[r]);
    tocsin_json_end_array(json);
    tocsin_json_key(json, "parts");
    tocsin_json_begin_array(json);
    for (size_t p = 0; p < cuts->part_count; p++)
        put_part(json, &known->parts[p]);
    tocsin_json_end_array(json);
    tocsin_json_key(json, "dead");
    tocsin_json_unsigned(json, known->dead);
    put_lines(json, "assumptions", known->assumptions.items, known->assumptions.count);
    put_lines(json, "dead_lines", known->dead_lines.items, known->dead_lines.count);
    tocsin_json_end_object(json);
}

tocsin_status tocsin_known_write(const tocsin_known *known, tocsin_string *file,
                                 tocsin_error *error)
{
    tocsin_string body = {0};
    tocsin_json json = {.out = &body};
    char checksum[DIGEST_CHARS + 1];

    put_known(&json, known);
    digest_text(tocsin_hash128_of(tocsin_string_text(&body), body.bytes, 0), checksum);
    tocsin_string_append_text(file, checksum);
    tocsin_string_append_char(file, '\n');
    tocsin_string_append(file, tocsin_string_text(&body), body.bytes);
    const tocsin_status status = tocsin_string_check(&body, error);
    tocsin_string_free(&body);
    return status == TOCSIN_OK ? tocsin_string_check(file, error) : status;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* `sound` turns false at the first thing that is not as written, or when memory is out. */
typedef struct loader {
    tocsin_known *known;
    bool sound, memory;
} loader;

static bool parse_hex(const char *text, uint64_t *word)
{
    *word = 0;
    for (int k = 0; k < DIGEST_CHARS / 2; k++) {
        const char c = text[k];
        const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (digit < 0)
            return false;
        *word = *word << 4 | (uint64_t)digit;
    }
    return true;
}

static bool parse_digest(const char *text, tocsin_hash128 *digest)
{
    return parse_hex(text, &digest->high) && parse_hex(text + DIGEST_CHARS / 2, &digest->low);
}

static tocsin_hash128 get_digest(loader *one, const tocsin_json_value *value)
{
    tocsin_hash128 digest = {0};
    const char *text = tocsin_json_get_text(value);
    one->sound &= text != NULL && strlen(text) == DIGEST_CHARS && parse_digest(text, &digest);
    return digest;
}

static uint64_t get_unsigned(loader *one, const tocsin_json_value *value, uint64_t limit)
{
    int64_t number = 0;
    one->sound &=
        tocsin_json_get_integer(value, &number) && number >= 0 && (uint64_t)number <= limit;
    return one->sound ? (uint64_t)number : 0;
}

static void get_counts(loader *one, const tocsin_json_value *object, uint64_t *counts[3])
{
    const tocsin_json_value *array = tocsin_json_get_member(object, "counts");
    one->sound &= tocsin_json_get_count(array) == 3;
    for (size_t k = 0; k < 3 && one->sound; k++)
        *counts[k] = get_unsigned(one, tocsin_json_get_item(array, k), INT64_MAX);
}

static void keep(loader *one, bool stored)
{
    one->memory |= !stored;
    one->sound &= stored;
}

static void get_intern(loader *one, const tocsin_json_value *array, tocsin_intern *table)
{
    const size_t count = tocsin_json_get_count(array);
    for (size_t k = 0; k < count && one->sound; k++) {
        const char *text = tocsin_json_get_text(tocsin_json_get_item(array, k));
        if (text == NULL || tocsin_intern_find(table, text, strlen(text)) != 0)
            one->sound = false;
        else
            keep(one, tocsin_intern_put(table, text, strlen(text)) != 0);
    }
}

static void get_claim(loader *one, const tocsin_json_value *array, tocsin_role_cuts *role)
{
    enum { FIXED = 4, EACH = 1 + TOCSIN_SYMBOL_COUNT };
    const size_t count = tocsin_json_get_count(array);
    tocsin_part_claim claim = {0};
    const uint32_t strings = tocsin_intern_count(&one->known->cuts.strings);

    one->sound &= count >= FIXED && (count - FIXED) % EACH == 0 &&
                  (count - FIXED) / EACH <= TOCSIN_PLAN_NDIM_MAX;
    if (!one->sound)
        return;
    claim.name = (uint32_t)get_unsigned(one, tocsin_json_get_item(array, 0), strings);
    claim.is_input = get_unsigned(one, tocsin_json_get_item(array, 1), 1) != 0;
    claim.ndim = (uint8_t)((count - FIXED) / EACH);
    one->sound &= tocsin_json_get_integer(tocsin_json_get_item(array, 2), &claim.numerator) &&
                  tocsin_json_get_integer(tocsin_json_get_item(array, 3), &claim.denominator) &&
                  claim.name != 0 && claim.numerator != 0 && claim.denominator > 0;
    for (size_t k = FIXED; k < count && one->sound; k++) {
        tocsin_affine *start = &claim.starts[(k - FIXED) / EACH];
        const size_t field = (k - FIXED) % EACH;
        int64_t *place = field == 0 ? &start->base : &start->weight[field - 1];
        one->sound &= tocsin_json_get_integer(tocsin_json_get_item(array, k), place);
    }
    if (one->sound)
        keep(one, TOCSIN_VEC_PUSH(&role->claims, claim));
}

static void get_role(loader *one, const tocsin_json_value *object, size_t index)
{
    tocsin_known_role *role = &one->known->roles[index];
    tocsin_role_cuts *cuts = &one->known->cuts.roles[index];
    const tocsin_json_value *claims = tocsin_json_get_member(object, "claims");
    const tocsin_json_value *messages = tocsin_json_get_member(object, "messages");
    const tocsin_json_value *parts = tocsin_json_get_member(object, "parts");
    uint64_t *counts[] = {&role->operators, &role->executions, &role->nodes};

    role->text = get_digest(one, tocsin_json_get_member(object, "text"));
    role->communication = get_digest(one, tocsin_json_get_member(object, "communication"));
    get_counts(one, object, counts);
    get_intern(one, tocsin_json_get_member(object, "values"), &cuts->names);
    for (size_t k = 0; k < tocsin_json_get_count(claims) && one->sound; k++)
        get_claim(one, tocsin_json_get_item(claims, k), cuts);
    one->sound &= tocsin_intern_count(&cuts->names) == cuts->claims.count;
    for (size_t k = 0; k < tocsin_json_get_count(messages) && one->sound; k++)
        keep(one, TOCSIN_VEC_PUSH(&cuts->messages, (uint8_t)get_unsigned(
                                                       one, tocsin_json_get_item(messages, k), 1)));
    one->sound &= tocsin_json_get_count(parts) % 2 == 0;
    for (size_t k = 0; k + 1 < tocsin_json_get_count(parts) && one->sound; k += 2) {
        const tocsin_contribution made = {
            .part = (uint32_t)get_unsigned(one, tocsin_json_get_item(parts, k),
                                           one->known->cuts.part_count - 1),
            .digest = get_digest(one, tocsin_json_get_item(parts, k + 1))};
        one->sound &= role->contributions.count == 0 ||
                      role->contributions.items[role->contributions.count - 1].part < made.part;
        keep(one, TOCSIN_VEC_PUSH(&role->contributions, made));
    }
}

/* Words of an interface: a string of the cuts, and above it what `high_max` allows. */
static bool get_word(loader *one, const tocsin_json_value *value, uint64_t high_max, uint64_t *word)
{
    *word = get_unsigned(one, value, INT64_MAX);
    one->sound &= (uint32_t)*word != 0 &&
                  (uint32_t)*word <= tocsin_intern_count(&one->known->cuts.strings) &&
                  *word >> 32 <= high_max;
    return one->sound;
}

static void get_part(loader *one, const tocsin_json_value *object, tocsin_known_part *part)
{
    const tocsin_json_value *imports = tocsin_json_get_member(object, "imports");
    const tocsin_json_value *exports = tocsin_json_get_member(object, "exports");
    const tocsin_json_value *outputs = tocsin_json_get_member(object, "outputs");
    uint64_t *counts[] = {&part->outputs, &part->gradients, &part->dead};
    uint64_t word;

    part->key = get_digest(one, tocsin_json_get_member(object, "key"));
    part->logical = get_digest(one, tocsin_json_get_member(object, "logical"));
    get_counts(one, object, counts);
    for (size_t k = 0; k < tocsin_json_get_count(imports) && one->sound; k++)
        if (get_word(one, tocsin_json_get_item(imports, k), 1, &word))
            keep(one, TOCSIN_VEC_PUSH(&part->interface.imports, word));
    for (size_t k = 0; k < tocsin_json_get_count(exports) && one->sound; k++)
        if (get_word(one, tocsin_json_get_item(exports, k), 1, &word))
            keep(one, TOCSIN_VEC_PUSH(&part->interface.exports, word));
    for (size_t k = 0; k < tocsin_json_get_count(outputs) && one->sound; k++)
        if (get_word(one, tocsin_json_get_item(outputs, k), TOCSIN_OUTPUT_OTHER, &word))
            keep(one, TOCSIN_VEC_PUSH(&part->interface.outputs, word));
}

static void get_parts_of_keys(loader *one, const tocsin_json_value *array)
{
    tocsin_cuts *cuts = &one->known->cuts;
    const size_t count = tocsin_json_get_count(array);
    one->sound &= count == tocsin_intern_count(&cuts->keys) && count > 0;
    for (size_t k = 0; k < count && one->sound; k++) {
        const uint32_t part =
            (uint32_t)get_unsigned(one, tocsin_json_get_item(array, k), cuts->part_count);
        if (one->sound && part == cuts->part_count)
            cuts->part_count++;
        keep(one, TOCSIN_VEC_PUSH(&cuts->part_of_key, part));
    }
}

static void get_known(loader *one, const tocsin_json_value *root)
{
    tocsin_known *known = one->known;
    const tocsin_json_value *roles = tocsin_json_get_member(root, "roles");
    const tocsin_json_value *parts = tocsin_json_get_member(root, "parts");
    const tocsin_json_value *lines[] = {tocsin_json_get_member(root, "assumptions"),
                                        tocsin_json_get_member(root, "dead_lines")};

    one->sound &= get_unsigned(one, tocsin_json_get_member(root, "schema"), 1) == 1;
    known->header = get_digest(one, tocsin_json_get_member(root, "header"));
    known->logical = get_digest(one, tocsin_json_get_member(root, "logical"));
    get_intern(one, tocsin_json_get_member(root, "keys"), &known->cuts.keys);
    get_parts_of_keys(one, tocsin_json_get_member(root, "part_of_key"));
    get_intern(one, tocsin_json_get_member(root, "strings"), &known->cuts.strings);
    one->sound &= tocsin_json_get_count(roles) == known->cuts.role_count &&
                  tocsin_json_get_count(parts) == known->cuts.part_count;
    if (!one->sound)
        return;
    known->roles = tocsin_zalloc(known->cuts.role_count + 1, sizeof *known->roles);
    known->parts = tocsin_zalloc((size_t)known->cuts.part_count + 1, sizeof *known->parts);
    keep(one, known->roles != NULL && known->parts != NULL);
    for (size_t r = 0; r < known->cuts.role_count && one->sound; r++)
        get_role(one, tocsin_json_get_item(roles, r), r);
    for (size_t p = 0; p < known->cuts.part_count && one->sound; p++)
        get_part(one, tocsin_json_get_item(parts, p), &known->parts[p]);
    known->dead = get_unsigned(one, tocsin_json_get_member(root, "dead"), INT64_MAX);
    for (int list = 0; list < 2; list++) {
        for (size_t k = 0; k < tocsin_json_get_count(lines[list]) && one->sound; k++) {
            const char *text = tocsin_json_get_text(tocsin_json_get_item(lines[list], k));
            char *copy = text == NULL ? NULL : tocsin_copy_text(text, strlen(text));
            const bool stored =
                copy != NULL && (list == 0 ? TOCSIN_VEC_PUSH(&known->assumptions, copy)
                                           : TOCSIN_VEC_PUSH(&known->dead_lines, copy));
            if (!stored)
                tocsin_free(copy);
            one->sound &= stored;
        }
    }
}

/* The JSON behind a right checksum, or NULL. E_MEMORY alone is an error. */
static tocsin_status parse_store(const char *text, size_t bytes, tocsin_json_value **root,
                                 tocsin_error *error)
{
    enum { HEAD = DIGEST_CHARS + 1 };
    tocsin_hash128 checksum;
    *root = NULL;
    if (bytes <= HEAD || !parse_digest(text, &checksum) || text[DIGEST_CHARS] != '\n')
        return TOCSIN_OK;
    const tocsin_hash128 real = tocsin_hash128_of(text + HEAD, bytes - HEAD, 0);
    if (real.low != checksum.low || real.high != checksum.high)
        return TOCSIN_OK;
    const tocsin_status status =
        tocsin_json_parse(text + HEAD, bytes - HEAD, "the cache", root, NULL);
    return status == TOCSIN_E_MEMORY ? tocsin_error_memory(error) : TOCSIN_OK;
}

/* One reading of the JSON. *found: it is what it should be. */
static tocsin_status fill(tocsin_known *known, const tocsin_json_value *root, tocsin_hash128 header,
                          size_t role_count, bool *found, tocsin_error *error)
{
    loader one = {.known = known, .sound = true};
    *known = (tocsin_known){0};
    keep(&one, tocsin_cuts_init(&known->cuts, role_count));
    if (one.sound)
        get_known(&one, root);
    *found = one.sound && known->header.low == header.low && known->header.high == header.high;
    return one.memory ? tocsin_error_memory(error) : TOCSIN_OK;
}

tocsin_status tocsin_known_parse(tocsin_known *known, tocsin_known *copy, const char *text,
                                 size_t bytes, tocsin_hash128 header, size_t role_count,
                                 bool *found, tocsin_error *error)
{
    tocsin_json_value *root;

    *known = (tocsin_known){0};
    if (copy != NULL)
        *copy = (tocsin_known){0};
    *found = false;
    TOCSIN_TRY(parse_store(text, bytes, &root, error));
    if (root == NULL)
        return TOCSIN_OK;
    tocsin_status status = fill(known, root, header, role_count, found, error);
    if (status == TOCSIN_OK && *found && copy != NULL)
        status = fill(copy, root, header, role_count, found, error);
    tocsin_json_free(root);
    if (status != TOCSIN_OK || !*found) {
        *found = false;
        tocsin_known_free(known);
        if (copy != NULL)
            tocsin_known_free(copy);
    }
    return status;
}
