/* finding.c - what a check found: its memory, its invariant, its JSON.
 *
 * Data: one arena a finding, which holds copies of all texts and arrays. Invariant: ranks are named
 * if and only if the cause is a fault of theirs (transient, persistent), so that whoever looks at
 * the ranks alone never acts on what could not be attributed. Cost: O(bytes).
 */
#include "guard/guard.h"

#include <assert.h>

#define TEXT_RANKS_MAX     8
#define TEXT_BYTES_MAX     (1u << 16)
#define EVIDENCE_BYTES_MAX (1u << 20)
#define SCHEMA             1

typedef struct held_finding {
    tocsin_guard_finding content; /* first: a finding is one */
    tocsin_arena arena;
} held_finding;

/* ---- names --------------------------------------------------------------------------------- */

#define X(number, name, text) [number] = text,
static const char *const check_names[] = {TOCSIN_GUARD_CHECK_TABLE(X)};
static const char *const cause_names[] = {TOCSIN_GUARD_CAUSE_TABLE(X)};
#undef X

static const char *name_of(const char *const *names, size_t count, int number)
{
    return number >= 0 && (size_t)number < count ? names[number] : "unknown";
}

static int number_of(const char *const *names, size_t count, const char *name)
{
    for (size_t n = 0; n < count; ++n) {
        if (strcmp(names[n], name) == 0)
            return (int)n;
    }
    return -1;
}

const char *tocsin_guard_check_name(tocsin_guard_check check)
{
    return name_of(check_names, TOCSIN_COUNT_OF(check_names), (int)check);
}

const char *tocsin_guard_cause_name(tocsin_guard_cause cause)
{
    return name_of(cause_names, TOCSIN_COUNT_OF(cause_names), (int)cause);
}

int tocsin_guard_check_number(const char *name)
{
    return number_of(check_names, TOCSIN_COUNT_OF(check_names), name);
}

int tocsin_guard_cause_number(const char *name)
{
    return number_of(cause_names, TOCSIN_COUNT_OF(cause_names), name);
}

/* ---- making one ---------------------------------------------------------------------------- */

static tocsin_status check_ranks(const tocsin_guard_finding *content, tocsin_error *error)
{
    bool fault =
        content->cause == TOCSIN_GUARD_TRANSIENT || content->cause == TOCSIN_GUARD_PERSISTENT;
    if (fault != (content->rank_count > 0))
        return tocsin_error_set(error, TOCSIN_E_ARGUMENT,
                                "a finding names ranks if its cause is transient or persistent, "
                                "and only then: %s with %zu ranks",
                                tocsin_guard_cause_name(content->cause), content->rank_count);
    for (size_t r = 1; r < content->rank_count; ++r) {
        if (content->ranks[r - 1] >= content->ranks[r])
            return tocsin_error_set(error, TOCSIN_E_ARGUMENT,
                                    "the ranks of a finding are ascending");
    }
    return TOCSIN_OK;
}

static tocsin_status check_evidence(const char *evidence, tocsin_error *error)
{
    tocsin_json_value *root = NULL;
    size_t bytes = strlen(evidence);
    if (bytes > EVIDENCE_BYTES_MAX)
        return tocsin_error_set(error, TOCSIN_E_LIMIT, "evidence of more than %u bytes",
                                EVIDENCE_BYTES_MAX);
    TOCSIN_TRY(tocsin_json_parse(evidence, bytes, "evidence", &root, error));
    bool object = tocsin_json_get_kind(root) == TOCSIN_JSON_OBJECT;
    tocsin_json_free(root);
    if (!object || memchr(evidence, '\n', bytes))
        return tocsin_error_set(error, TOCSIN_E_ARGUMENT, "evidence is a JSON object on one line");
    return TOCSIN_OK;
}

static tocsin_status check_content(const tocsin_guard_finding *content, tocsin_error *error)
{
    if ((size_t)content->check >= TOCSIN_COUNT_OF(check_names) ||
        (size_t)content->cause >= TOCSIN_COUNT_OF(cause_names))
        return tocsin_error_set(error, TOCSIN_E_ARGUMENT, "no such check or cause");
    if (content->rank_count > TOCSIN_GUARD_RANKS_MAX || content->index_count > TOCSIN_NDIM_MAX ||
        content->cover_count > TOCSIN_GUARD_COVERS_MAX)
        return tocsin_error_set(error, TOCSIN_E_LIMIT, "a finding of too many ranks or axes");
    if (strlen(content->text) > TEXT_BYTES_MAX || strlen(content->tensor) > TEXT_BYTES_MAX)
        return tocsin_error_set(error, TOCSIN_E_LIMIT,
                                "a finding with a text of more than %u bytes", TEXT_BYTES_MAX);
    TOCSIN_TRY(check_ranks(content, error));
    return check_evidence(content->evidence, error);
}

static bool copy_content(held_finding *held, const tocsin_guard_finding *content)
{
    tocsin_arena *arena = &held->arena;
    tocsin_guard_finding *copy = &held->content;
    size_t covered = content->cover_count ? content->cover_ends[content->cover_count - 1] : 0;
    *copy = *content;
    copy->ranks =
        tocsin_arena_copy_items(arena, content->ranks, content->rank_count, sizeof(uint32_t));
    copy->cover_ranks =
        tocsin_arena_copy_items(arena, content->cover_ranks, covered, sizeof(uint32_t));
    copy->cover_ends =
        tocsin_arena_copy_items(arena, content->cover_ends, content->cover_count, sizeof(size_t));
    copy->index =
        tocsin_arena_copy_items(arena, content->index, content->index_count, sizeof(int64_t));
    copy->tensor = tocsin_arena_copy(arena, content->tensor, strlen(content->tensor));
    copy->text = tocsin_arena_copy(arena, content->text, strlen(content->text));
    copy->evidence = tocsin_arena_copy(arena, content->evidence, strlen(content->evidence));
    return copy->ranks && copy->cover_ranks && copy->cover_ends && copy->index && copy->tensor &&
           copy->text && copy->evidence;
}

tocsin_status tocsin_guard_finding_new(const tocsin_guard_finding *content,
                                       tocsin_guard_finding **finding, tocsin_error *error)
{
    *finding = NULL;
    TOCSIN_TRY(check_content(content, error));
    held_finding *held = tocsin_zalloc(1, sizeof *held);
    if (!held)
        return tocsin_error_memory(error);
    held->arena.chunk_bytes = 1024;
    if (!copy_content(held, content)) {
        tocsin_guard_finding_free(&held->content);
        return tocsin_error_memory(error);
    }
    *finding = &held->content;
    return TOCSIN_OK;
}

void tocsin_guard_finding_free(tocsin_guard_finding *finding)
{
    if (!finding)
        return;
    held_finding *held = (held_finding *)finding;
    tocsin_arena_free(&held->arena);
    tocsin_free(held);
}

/* ---- drafts -------------------------------------------------------------------------------- */

void tocsin_draft_begin(finding_draft *draft, tocsin_guard_check check, tocsin_guard_moment moment,
                        size_t replicas)
{
    *draft = (finding_draft){.content = {.check = check,
                                         .cause = TOCSIN_GUARD_UNATTRIBUTABLE,
                                         .moment = moment,
                                         .tensor = "",
                                         .bucket = -1,
                                         .replicas = (uint32_t)replicas}};
    draft->json.out = &draft->evidence;
    tocsin_json_begin_object(&draft->json);
}

tocsin_status tocsin_draft_finish(finding_draft *draft, tocsin_guard_finding **finding,
                                  tocsin_error *error)
{
    assert(draft->json.depth == 1);
    tocsin_json_end_object(&draft->json);
    tocsin_status status = tocsin_string_check(&draft->evidence, error);
    if (status == TOCSIN_OK)
        status = tocsin_string_check(&draft->text, error);
    if (status == TOCSIN_OK) {
        draft->content.ranks = draft->ranks.items;
        draft->content.rank_count = draft->ranks.count;
        draft->content.text = tocsin_string_text(&draft->text);
        draft->content.evidence = draft->evidence.text;
        status = tocsin_guard_finding_new(&draft->content, finding, error);
        assert(status != TOCSIN_E_ARGUMENT);
    }
    tocsin_draft_free(draft);
    return status;
}

void tocsin_draft_free(finding_draft *draft)
{
    TOCSIN_VEC_FREE(&draft->ranks);
    tocsin_string_free(&draft->text);
    tocsin_string_free(&draft->evidence);
}

void tocsin_draft_ranks_text(tocsin_string *text, const uint32_t *ranks, size_t count)
{
    size_t shown = count > TEXT_RANKS_MAX ? TEXT_RANKS_MAX : count;
    tocsin_string_append_text(text, count == 1 ? "rank" : "ranks");
    for (size_t r = 0; r < shown; ++r) {
        const char *before = r == 0 ? " " : r + 1 == count ? " and " : ", ";
        tocsin_string_printf(text, "%s%u", before, ranks[r]);
    }
    if (shown < count)
        tocsin_string_printf(text, " and %zu more", count - shown);
}

void tocsin_draft_put_ranks(tocsin_json *json, const char *key, const uint32_t *ranks, size_t count)
{
    tocsin_json_key(json, key);
    tocsin_json_begin_array(json);
    for (size_t r = 0; r < count; ++r)
        tocsin_json_unsigned(json, ranks[r]);
    tocsin_json_end_array(json);
}

void tocsin_draft_put_digest(tocsin_json *json, const char *key, tocsin_digest digest)
{
    char text[3 * 16 + 1];
    static const char digits[] = "0123456789abcdef";
    const uint64_t parts[] = {digest.sum, digest.exclusive, digest.polynomial};
    for (size_t i = 0; i < 48; ++i)
        text[i] = digits[parts[i / 16] >> (60 - 4 * (i % 16)) & 15];
    text[48] = 0;
    tocsin_json_put_text(json, key, text);
}

tocsin_guard_cause tocsin_draft_cause(const finding_draft *draft, const uint32_t *named,
                                      size_t named_count)
{
    for (size_t n = 0; n < named_count; ++n) {
        for (size_t r = 0; r < draft->ranks.count; ++r) {
            if (draft->ranks.items[r] == named[n])
                return TOCSIN_GUARD_PERSISTENT;
        }
    }
    return TOCSIN_GUARD_TRANSIENT;
}

/* ---- JSON ---------------------------------------------------------------------------------- */

static void put_covers(tocsin_json *json, const tocsin_guard_finding *finding)
{
    size_t begin = 0;
    tocsin_json_key(json, "covers");
    tocsin_json_begin_array(json);
    for (size_t c = 0; c < finding->cover_count; ++c) {
        tocsin_json_begin_array(json);
        for (; begin < finding->cover_ends[c]; ++begin)
            tocsin_json_unsigned(json, finding->cover_ranks[begin]);
        tocsin_json_end_array(json);
    }
    tocsin_json_end_array(json);
    if (finding->covers_cut) {
        tocsin_json_key(json, "covers_cut");
        tocsin_json_bool(json, true);
    }
}

static void put_place(tocsin_json *json, const tocsin_guard_finding *finding)
{
    tocsin_json_put_text(json, "tensor", finding->tensor);
    tocsin_json_key(json, "bucket");
    if (finding->bucket < 0)
        tocsin_json_null(json);
    else
        tocsin_json_integer(json, finding->bucket);
    tocsin_json_key(json, "index");
    tocsin_json_begin_array(json);
    for (size_t i = 0; i < finding->index_count; ++i)
        tocsin_json_integer(json, finding->index[i]);
    tocsin_json_end_array(json);
}

tocsin_status tocsin_guard_finding_json(const tocsin_guard_finding *finding, char **text,
                                        size_t *bytes, tocsin_error *error)
{
    tocsin_string out = {0};
    tocsin_json json = {.out = &out};
    const tocsin_guard_moment moment = finding->moment;
    *text = NULL;
    tocsin_json_begin_object(&json);
    tocsin_json_put_unsigned(&json, "schema", SCHEMA);
    tocsin_json_put_text(&json, "check", tocsin_guard_check_name(finding->check));
    tocsin_json_key(&json, "step");
    tocsin_json_integer(&json, moment.step);
    tocsin_json_put_text(&json, "cause", tocsin_guard_cause_name(finding->cause));
    tocsin_draft_put_ranks(&json, "ranks", finding->ranks, finding->rank_count);
    put_covers(&json, finding);
    put_place(&json, finding);
    tocsin_json_put_unsigned(&json, "replicas", finding->replicas);
    tocsin_json_key(&json, "suspect_window");
    tocsin_json_begin_array(&json);
    tocsin_json_integer(&json, moment.passed < moment.step ? moment.passed + 1 : moment.step);
    tocsin_json_integer(&json, moment.step);
    tocsin_json_end_array(&json);
    tocsin_json_put_text(&json, "text", finding->text);
    tocsin_json_key(&json, "evidence");
    tocsin_string_append_text(&out, finding->evidence);
    json.after_key = false;
    tocsin_json_end_object(&json);
    tocsin_status status = tocsin_string_check(&out, error);
    if (status != TOCSIN_OK) {
        tocsin_string_free(&out);
        return status;
    }
    *text = out.text;
    *bytes = out.bytes;
    return TOCSIN_OK;
}

void tocsin_guard_text_free(char *text)
{
    tocsin_free(text);
}
