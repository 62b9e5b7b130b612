/* Shards of an observer: together they make exactly the instances of one observer, whatever their
 * number, narrow and wide, so that no relation lives on what another leaves behind. */
#include "fake_training.h"

typedef struct recorder {
    tocsin_vocabulary *vocabulary;
    tocsin_string line; /* of one instance */
    uint64_t sum;       /* of the lines' hashes: their order does not matter */
    uint64_t count;
} recorder;

static void put_scalar(recorder *to, tocsin_scalar scalar)
{
    if (scalar == 0)
        return;
    tocsin_literal literal = tocsin_scalar_literal(to->vocabulary, scalar);
    tocsin_string_printf(&to->line, " %d %lld %.17g %s", literal.kind, (long long)literal.integer,
                         literal.real, literal.text);
}

/* Facts and fields in the order of their contents: they stand in that of their ids. */
static uint64_t hash_fields(recorder *to, const tocsin_instance *instance)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < instance->field_count; ++i) {
        const tocsin_field *field = &instance->fields[i];
        tocsin_string_clear(&to->line);
        tocsin_string_append_text(&to->line, tocsin_symbol_text(to->vocabulary, field->name));
        put_scalar(to, field->a);
        put_scalar(to, field->b);
        sum += tocsin_hash64(to->line.text, to->line.bytes, 1);
    }
    for (uint32_t i = 0; i < instance->fact_count; ++i) {
        tocsin_fact_key key = tocsin_fact_get_key(to->vocabulary, instance->facts[i]);
        tocsin_string_clear(&to->line);
        tocsin_string_printf(&to->line, "%d %d %s %s", key.predicate, key.role,
                             tocsin_symbol_text(to->vocabulary, key.name),
                             tocsin_symbol_text(to->vocabulary, key.other));
        put_scalar(to, key.value);
        sum += tocsin_hash64(to->line.text, to->line.bytes, 2);
    }
    return sum;
}

static tocsin_status record(void *context, const tocsin_instance *instance, tocsin_error *error)
{
    recorder *to = context;
    uint64_t content = hash_fields(to, instance);
    tocsin_population_key key = tocsin_population_get_key(to->vocabulary, instance->population);
    tocsin_string_clear(&to->line);
    tocsin_string_printf(&to->line, "%d %d %d %d %s %s %lld %llx", key.kind, key.role, key.variable,
                         key.moment, tocsin_symbol_text(to->vocabulary, key.name),
                         instance->evidence.entity, (long long)instance->evidence.step,
                         (unsigned long long)content);
    to->sum += tocsin_mix64(tocsin_hash64(to->line.text, to->line.bytes, 3));
    ++to->count;
    return tocsin_string_check(&to->line, error);
}

static void one_step(fake_process *process, int i)
{
    tocsin_value values[2] = {tensor_value(process, "input", TOCSIN_DTYPE_FLOAT32, 4, 4),
                              {.kind = TOCSIN_VALUE_FLOAT, .as.real = i * 0.7}};
    values[1].name = define_string(process, "p");
    tocsin_value returned = tensor_value(process, "return", TOCSIN_DTYPE_FLOAT32, 4, 4);
    enter_with(process, "torch.nn.functional.dropout", TOCSIN_ROLE_NONE, values, 2);
    enter_with(process, "torch.dropout", TOCSIN_ROLE_NONE, values, 2);
    leave_with(process, "torch.dropout", TOCSIN_ROLE_NONE, TOCSIN_EVENT_EXIT, &returned, 1);
    leave_with(process, "torch.nn.functional.dropout", TOCSIN_ROLE_NONE, TOCSIN_EVENT_EXIT,
               &returned, 1);
    enter_with(process, "all_reduce", TOCSIN_ROLE_COLLECTIVE, values, 1);
    leave_with(process, "all_reduce", TOCSIN_ROLE_COLLECTIVE, TOCSIN_EVENT_EXIT, values, 1);
    call(process, "model.train", TOCSIN_ROLE_MODE);
    train(process, (fake_step){.no_zero_grad = i % 5 == 4, .lr = i % 3 == 2 ? 0.2 : 0.1});
    call(process, "torch.optim.lr_scheduler.LRScheduler.step", TOCSIN_ROLE_SCHEDULER_STEP);
    tocsin_value slot = {.kind = TOCSIN_VALUE_INT, .as.integer = 0};
    slot.name = define_string(process, "self.slot");
    enter_with(process, "torch.optim.Optimizer.step", TOCSIN_ROLE_OPTIMIZER_STEP, &slot, 1);
    leave(process, "torch.optim.Optimizer.step", TOCSIN_ROLE_OPTIMIZER_STEP);
}

/* What shard `shard` of `shards` makes of two ranks that train. */
static recorder observe(uint32_t shard, uint32_t shards, bool wide)
{
    recorder made = {.sum = 0};
    tocsin_observer *observer;
    assert_int_equal(tocsin_vocabulary_new(&made.vocabulary, NULL), TOCSIN_OK);
    tocsin_observer_options options = {.vocabulary = made.vocabulary,
                                       .sink = record,
                                       .context = &made,
                                       .contrast = true,
                                       .wide = wide,
                                       .shard = shard,
                                       .shards = shards};
    assert_int_equal(tocsin_observer_new(&options, &observer, NULL), TOCSIN_OK);
    fake_process ranks[2] = {{.observer = observer}, {.observer = observer, .index = 1}};
    for (int rank = 0; rank < 2; ++rank) {
        fake_start(&ranks[rank]);
        meta_int(&ranks[rank], "rank", rank);
        meta_int(&ranks[rank], "world_size", 2);
    }
    for (int i = 0; i < 8; ++i)
        for (int rank = 0; rank < 2; ++rank)
            one_step(&ranks[rank], i);
    for (int rank = 0; rank < 2; ++rank) {
        assert_int_equal(ranks[rank].status, TOCSIN_OK);
        fake_free(&ranks[rank]);
    }
    assert_int_equal(tocsin_observer_finish(observer, NULL), TOCSIN_OK);
    tocsin_observer_free(observer);
    tocsin_vocabulary_free(made.vocabulary);
    tocsin_string_free(&made.line);
    return made;
}

static void test_shards_make_what_one_observer_makes(void **state)
{
    (void)state;
    for (int wide = 0; wide < 2; ++wide) {
        recorder whole = observe(0, 0, wide == 1);
        assert_true(whole.count > 400);
        for (uint32_t shards = 1; shards <= 9; ++shards) {
            uint64_t sum = 0, count = 0, most = 0;
            for (uint32_t shard = 0; shard < shards; ++shard) {
                recorder part = observe(shard, shards, wide == 1);
                sum += part.sum;
                count += part.count;
                most = part.count > most ? part.count : most;
            }
            assert_int_equal(count, whole.count);
            assert_int_equal(sum, whole.sum);
            assert_true(shards == 1 || most < whole.count);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shards_make_what_one_observer_makes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
