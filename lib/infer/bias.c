/* The bias of learning: which statements are worth claiming from a handful of runs.
 *
 * Any learner needs one (Mitchell 1980): without it every accident of three runs is a law. Ours
 * speaks of kinds of statements only, never of a particular function, model or script. Each rule is
 * measured in docs/decisions/0003-invariant-quality.md: what it removes were the false alarms of
 * healthy runs with other hyper-parameters. */
#include <assert.h>
#include <infer/infer.h>

const char *tocsin_drop_reason(tocsin_drop drop)
{
    static const char *const reasons[] = {
#define X(name, reason) [TOCSIN_DROP_##name] = reason,
        TOCSIN_DROP_TABLE(X)
#undef X
    };
    assert(drop < TOCSIN_DROP_COUNT);
    return reasons[drop];
}

static bool starts_with(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

static bool ends_with(const char *text, const char *suffix)
{
    size_t bytes = strlen(text), tail = strlen(suffix);
    return bytes >= tail && strcmp(text + bytes - tail, suffix) == 0;
}

static bool is_one_of(uint8_t role, const uint8_t *roles, size_t count)
{
    return memchr(roles, role, count) != NULL;
}

/* The loop's skeleton is the same for every model: gradients are cleared, computed and applied, and
 * what surrounds an update stands in that order. Whether there is a surrounding (clipping, a
 * schedule) at all is the user's choice. */
static tocsin_drop bias_of_order(tocsin_population_key population, tocsin_fact_key fact)
{
    static const uint8_t skeleton[] = {TOCSIN_ROLE_ZERO_GRAD, TOCSIN_ROLE_BACKWARD,
                                       TOCSIN_ROLE_OPTIMIZER_STEP};
    static const uint8_t surroundings[] = {TOCSIN_ROLE_CLIP_GRAD, TOCSIN_ROLE_SCHEDULER_STEP};
    /* `p.grad = None` clears a gradient as well: whether it is cleared is seen in the gradient. */
    if (fact.role == TOCSIN_ROLE_ZERO_GRAD)
        return TOCSIN_DROP_UNSTABLE_ORDER;
    bool known = is_one_of(population.role, skeleton, sizeof skeleton) ||
                 is_one_of(population.role, surroundings, sizeof surroundings);
    return known && is_one_of(fact.role, skeleton, sizeof skeleton) && population.role != fact.role
               ? TOCSIN_DROP_KEPT
               : TOCSIN_DROP_UNSTABLE_ORDER;
}

/* Only what every model and every optimizer shares: that some verbs of training contain others, and
 * what the library's functions and initialisers are made of. */
static tocsin_drop bias_of_callee(const tocsin_vocabulary *vocabulary,
                                  tocsin_population_key population, tocsin_fact_key fact)
{
    static const uint8_t verbs[] = {TOCSIN_ROLE_BACKWARD, TOCSIN_ROLE_ZERO_GRAD,
                                    TOCSIN_ROLE_OPTIMIZER_STEP};
    const char *caller = tocsin_symbol_text(vocabulary, population.name);
    const char *callee = tocsin_symbol_text(vocabulary, fact.name);
    if (population.role == TOCSIN_ROLE_OPTIMIZER_STEP || starts_with(caller, "torch.optim."))
        return TOCSIN_DROP_OPTIMIZER_INTERNAL;
    /* F.relu(inplace=True) calls relu_, not relu. */
    const char *last = strrchr(caller, '.');
    if (last != NULL && starts_with(callee, "torch.") && strcmp(callee + 5, last) == 0)
        return TOCSIN_DROP_ARCHITECTURE;
    bool library =
        starts_with(caller, "torch.nn.functional.") || starts_with(caller, "torch.nn.init.");
    if (is_one_of(fact.role, verbs, sizeof verbs))
        return population.role != fact.role ? TOCSIN_DROP_KEPT : TOCSIN_DROP_ARCHITECTURE;
    return library && starts_with(callee, "torch.") ? TOCSIN_DROP_KEPT : TOCSIN_DROP_ARCHITECTURE;
}

/* What makes tensors of numbers: their device, dtype and content are the user's choice. */
static bool is_factory(const char *function)
{
    static const char *const prefixes[] = {"torch.as_tensor", "torch.empty",    "torch.zeros",
                                           "torch.ones",      "torch.full",     "torch.arange",
                                           "torch.linspace",  "torch.logspace", "torch.eye",
                                           "torch.rand",      "torch.normal"};
    for (size_t i = 0; i < TOCSIN_COUNT_OF(prefixes); ++i)
        if (starts_with(function, prefixes[i]))
            return true;
    return strcmp(function, "torch.tensor") == 0; /* not tensordot */
}

/* Whether a layer normalises by its batch or drops anything is decided by its module, which may be
 * in training mode without gradients (a teacher, statistics that are computed anew) and in
 * evaluation mode with them (frozen statistics). A builtin's arguments have no names: a flag among
 * them is mostly this one. What train(), eval() and zero_grad() are told is a habit. */
static bool is_mode(const char *function, const char *field, tocsin_literal literal)
{
    bool flag = literal.kind == TOCSIN_VALUE_BOOL;
    if (!starts_with(function, "torch."))
        return false;
    return (flag && (strcmp(field, "arg.training") == 0 || starts_with(field, "arg.arg"))) ||
           strcmp(field, "arg.dropout_p") == 0 || /* mostly not given */
           ends_with(function, ".train") || ends_with(function, ".eval") ||
           ends_with(function, ".zero_grad");
}

/* A tensor's properties in an argument are what the model feeds the function, and the precision the
 * user chose; a flag, a word, None or zero ("off") is how the function is told to behave. */
static tocsin_drop bias_of_argument(const tocsin_vocabulary *vocabulary,
                                    tocsin_population_key population, tocsin_fact_key fact)
{
    static const char *const properties[] = {".dtype", ".ndim", ".requires_grad", ".is_parameter"};
    const char *field = tocsin_symbol_text(vocabulary, fact.name);
    for (size_t i = 0; i < TOCSIN_COUNT_OF(properties); ++i)
        if (ends_with(field, properties[i]))
            return TOCSIN_DROP_DATA_FLOW;
    /* How a tensor is filled is the model's choice. */
    const char *function = tocsin_symbol_text(vocabulary, population.name);
    if (starts_with(function, "torch.nn.init.") ||
        (starts_with(function, "torch.Tensor.") && ends_with(function, "_")))
        return TOCSIN_DROP_OPTION;
    /* The mode of a module is how its call is told to behave; train() and eval() change it, and
     * state_dict() and the like do not ask for it. */
    bool mode = strcmp(field, "self.training") == 0 && !ends_with(function, ".train") &&
                !ends_with(function, ".eval") && !starts_with(function, "torch.nn.Module.");
    if (starts_with(field, "self.") && !mode)
        return TOCSIN_DROP_OPTION;
    tocsin_literal literal = tocsin_scalar_literal(vocabulary, fact.value);
    if (is_factory(function) || is_mode(function, field, literal))
        return TOCSIN_DROP_OPTION;
    bool magnitude = (literal.kind == TOCSIN_VALUE_FLOAT && literal.real != 0) ||
                     (literal.kind == TOCSIN_VALUE_INT && literal.integer != 0);
    return magnitude ? TOCSIN_DROP_MAGNITUDE : TOCSIN_DROP_KEPT;
}

/* "return.shape[0] equals arg.max_length": of a number, not of a tensor or list. */
static bool is_limit(const tocsin_vocabulary *vocabulary, tocsin_fact_key fact)
{
    const char *other = fact.predicate == TOCSIN_PREDICATE_RETURN_MATCHES
                            ? tocsin_symbol_text(vocabulary, fact.other)
                            : "";
    return starts_with(other, "arg.") && strchr(other + 4, '.') == NULL;
}

/* Functions of torch: layers keep precision, rank and batch, whatever else they do; other
 * operations may reduce, broadcast or promote, so that only what keeps the whole shape is told by
 * it; and what calls a function of the user's (checkpoint, vmap) or a method of an object returns
 * what that does. */
static tocsin_drop bias_of_operation(const char *function, const char *field, tocsin_fact_key fact)
{
    bool layer = starts_with(function, "torch.nn.functional.");
    bool operation = starts_with(function, "torch.Tensor.") || strchr(function + 6, '.') == NULL;
    if (!layer && !operation)
        return TOCSIN_DROP_DATA_FLOW;
    bool whole = fact.predicate != TOCSIN_PREDICATE_RETURN_MATCHES || ends_with(field, ".shape");
    return layer || whole ? TOCSIN_DROP_KEPT : TOCSIN_DROP_SIZE_COINCIDENCE;
}

static tocsin_drop bias_of_output(const tocsin_vocabulary *vocabulary,
                                  tocsin_population_key population, tocsin_fact_key fact)
{
    /* The class of what is returned is the program's: what torch.load gives is what was saved. */
    const char *field = tocsin_symbol_text(vocabulary, fact.name);
    /* Sizes, and that they are as large as a limit: evidence for what is claimed of them. */
    bool size = strcmp(field, "return") == 0 || ends_with(field, ".length") ||
                strncmp(field, "return.shape[", 13) == 0;
    bool number = fact.predicate == TOCSIN_PREDICATE_RETURN_IS &&
                  tocsin_scalar_literal(vocabulary, fact.value).kind == TOCSIN_VALUE_INT;
    if (size && (number || is_limit(vocabulary, fact)))
        return TOCSIN_DROP_MAGNITUDE;
    bool property = ends_with(field, ".requires_grad") ||
                    (fact.predicate == TOCSIN_PREDICATE_RETURN_IS &&
                     (ends_with(field, ".ndim") || ends_with(field, ".type")));
    if (property)
        return TOCSIN_DROP_DATA_FLOW;
    const char *function = tocsin_symbol_text(vocabulary, population.name);
    return starts_with(function, "torch.") ? bias_of_operation(function, field, fact)
                                           : TOCSIN_DROP_KEPT;
}

tocsin_drop tocsin_bias_of_fact(const tocsin_vocabulary *vocabulary, tocsin_population population,
                                tocsin_fact fact)
{
    tocsin_population_key population_key = tocsin_population_get_key(vocabulary, population);
    tocsin_fact_key fact_key = tocsin_fact_get_key(vocabulary, fact);
    switch (fact_key.predicate) {
    case TOCSIN_PREDICATE_FOLLOWS:
        return bias_of_order(population_key, fact_key);
    case TOCSIN_PREDICATE_CALLS:
        return bias_of_callee(vocabulary, population_key, fact_key);
    case TOCSIN_PREDICATE_ARGUMENT_IS:
        return bias_of_argument(vocabulary, population_key, fact_key);
    case TOCSIN_PREDICATE_RETURN_IS:
    case TOCSIN_PREDICATE_RETURN_MATCHES:
        return bias_of_output(vocabulary, population_key, fact_key);
    default:
        return TOCSIN_DROP_KEPT;
    }
}

bool tocsin_bias_wants_contrast(const tocsin_vocabulary *vocabulary, tocsin_fact fact)
{
    uint8_t predicate = tocsin_fact_get_key(vocabulary, fact).predicate;
    return predicate == TOCSIN_PREDICATE_ARGUMENT_IS || predicate == TOCSIN_PREDICATE_RETURN_IS;
}

uint8_t tocsin_bias_name_traits(const char *name)
{
    uint8_t traits = TOCSIN_TRAIT_KNOWN;
    if (tocsin_field_is_identity(name))
        traits |= TOCSIN_TRAIT_IDENTITY;
    if (ends_with(name, ".shape"))
        traits |= TOCSIN_TRAIT_SHAPE;
    if (starts_with(name, "arg."))
        traits |= TOCSIN_TRAIT_ARGUMENT;
    if (ends_with(name, ".ndim") || starts_with(name, "meta."))
        traits |= TOCSIN_TRAIT_COUNTED;
    if (strcmp(name, "var.name") == 0 || strcmp(name, "var.replicated") == 0 ||
        strcmp(name, "var.in_this_optimizer") == 0)
        traits |= TOCSIN_TRAIT_CONTRAST;
    return traits;
}

/* What optimizer.step does to parameters is to be claimed of those that it holds: averages and
 * teachers are written to by the script, and what was trained before keeps its last gradients. */
static bool is_of_held_parameters(const tocsin_vocabulary *vocabulary, tocsin_population population)
{
    uint8_t kind = tocsin_population_get_key(vocabulary, population).kind;
    return kind == TOCSIN_POPULATION_DRIVEN_PARAMETER || kind == TOCSIN_POPULATION_IDLE_PARAMETER ||
           kind == TOCSIN_POPULATION_FROZEN_PARAMETER;
}

bool tocsin_bias_is_contrast(const tocsin_vocabulary *vocabulary, tocsin_population population,
                             bool wide, const tocsin_field *field)
{
    const char *name = tocsin_symbol_text(vocabulary, field->name);
    bool pair = tocsin_population_is_pair(vocabulary, population);
    if (strcmp(name, "var.name") == 0)
        return pair && field->a != 0 && field->b != 0 && field->a != field->b;
    if (wide || field->a == 0 || tocsin_scalar_literal(vocabulary, field->a).integer != 0)
        return false;
    /* Of two ranks that hold something under one name it is to be claimed only of copies. */
    return strcmp(name, "var.replicated") == 0 ? pair
                                               : strcmp(name, "var.in_this_optimizer") == 0 &&
                                                     is_of_held_parameters(vocabulary, population);
}

uint8_t tocsin_bias_value_traits(const tocsin_vocabulary *vocabulary, tocsin_scalar value)
{
    tocsin_literal literal = tocsin_scalar_literal(vocabulary, value);
    if (literal.kind == TOCSIN_VALUE_INT)
        return TOCSIN_TRAIT_KNOWN | TOCSIN_TRAIT_WHOLE;
    /* what observers make of large numbers is no word */
    bool number = literal.kind == TOCSIN_VALUE_FLOAT ||
                  (literal.kind == TOCSIN_VALUE_STRING &&
                   (strcmp(literal.text, "an int") == 0 || strcmp(literal.text, "a float") == 0));
    return number ? TOCSIN_TRAIT_KNOWN | TOCSIN_TRAIT_NUMBER : TOCSIN_TRAIT_KNOWN;
}

/* Is "name = value" a clause? Whole numbers are sizes and hyper-parameters; not ndim, world_size, a
 * user's meta. */
static bool allows_constant(bool wide, uint8_t name, uint8_t value)
{
    if ((name & (TOCSIN_TRAIT_IDENTITY | TOCSIN_TRAIT_SHAPE)) != 0 ||
        (value & TOCSIN_TRAIT_NUMBER) != 0)
        return false;
    return wide || (value & TOCSIN_TRAIT_WHOLE) == 0 || (name & TOCSIN_TRAIT_COUNTED) != 0;
}

bool tocsin_bias_allows_field(bool wide, tocsin_relation_kind relation, bool pair, uint8_t name,
                              uint8_t value)
{
    if (pair)
        return true; /* even an identity may be equal or unequal */
    if (wide)
        return (name & (TOCSIN_TRAIT_IDENTITY | TOCSIN_TRAIT_SHAPE)) == 0;
    /* One argument never explains another: which tensors meet in a call is the model's data flow.
     * What a call returns does depend on its arguments. */
    if (relation == TOCSIN_RELATION_ARGUMENT && (name & TOCSIN_TRAIT_ARGUMENT) != 0)
        return false;
    return allows_constant(false, name, value);
}

bool tocsin_bias_allows_constant(const tocsin_vocabulary *vocabulary, bool wide,
                                 tocsin_symbol field, tocsin_scalar value)
{
    return allows_constant(wide, tocsin_bias_name_traits(tocsin_symbol_text(vocabulary, field)),
                           tocsin_bias_value_traits(vocabulary, value));
}

/* "arg.input.dtype", "self.dtype"; not "arg.dtype", an argument of that name. */
bool tocsin_bias_is_tensor_dtype(const char *field)
{
    return ends_with(field, ".dtype") && strcmp(field, "arg.dtype") != 0;
}

tocsin_context tocsin_bias_context(const tocsin_vocabulary *vocabulary,
                                   tocsin_population population, tocsin_symbol field)
{
    const char *name = tocsin_symbol_text(vocabulary, field);
    bool mode = strcmp(name, "meta.stage") == 0 || strcmp(name, "meta.grad_enabled") == 0;
    tocsin_population_key key = tocsin_population_get_key(vocabulary, population);
    if (key.kind == TOCSIN_POPULATION_LOSS)
        return mode ? TOCSIN_CONTEXT_MODE : TOCSIN_CONTEXT_NONE;
    switch (tocsin_population_relation(vocabulary, population)) {
    case TOCSIN_RELATION_OUTPUT:
        if (key.kind == TOCSIN_POPULATION_USER_CALL) /* of sizes only */
            return TOCSIN_CONTEXT_NONE;
        if (tocsin_bias_is_tensor_dtype(name))
            return TOCSIN_CONTEXT_PRECISION;
        /* fall through */
    case TOCSIN_RELATION_ARGUMENT:
        if (strcmp(name, "meta.autocast") == 0)
            return TOCSIN_CONTEXT_PRECISION;
        return mode ? TOCSIN_CONTEXT_MODE : TOCSIN_CONTEXT_NONE;
    case TOCSIN_RELATION_SEQUENCE: /* later micro-steps of an accumulated step lack a zero_grad */
        if (key.role == TOCSIN_ROLE_BACKWARD && strcmp(name, "meta.first_micro") == 0)
            return TOCSIN_CONTEXT_MODE;
        return TOCSIN_CONTEXT_NONE;
    case TOCSIN_RELATION_CONSISTENT: /* learned of copies, said of copies */
        return strcmp(name, "var.replicated") == 0 ? TOCSIN_CONTEXT_PRECISION : TOCSIN_CONTEXT_NONE;
    case TOCSIN_RELATION_FORALL:
        return strcmp(name, "var.in_this_optimizer") == 0 &&
                       is_of_held_parameters(vocabulary, population)
                   ? TOCSIN_CONTEXT_PRECISION
                   : TOCSIN_CONTEXT_NONE;
    default:
        return TOCSIN_CONTEXT_NONE;
    }
}

bool tocsin_bias_is_about(const tocsin_vocabulary *vocabulary, tocsin_fact fact,
                          tocsin_symbol field)
{
    const char *name = tocsin_symbol_text(vocabulary, field);
    switch (tocsin_fact_get_key(vocabulary, fact).predicate) {
    case TOCSIN_PREDICATE_IN_OPTIMIZER:
        return starts_with(name, "var.in_optimizer") || starts_with(name, "var.in_this_optimizer");
    case TOCSIN_PREDICATE_IN_MODEL:
        return starts_with(name, "var.in_model");
    default:
        return tocsin_fact_is_about(vocabulary, fact, field);
    }
}

int tocsin_bias_preference(const tocsin_vocabulary *vocabulary, const tocsin_clause *clause)
{
    /* What the loop is doing explains more than what a variable is, and that more than what one
     * call was given. */
    static const char *const prefixes[] = {"var.replicated",
                                           "meta.first_micro",
                                           "meta.grad_enabled",
                                           "meta.stage",
                                           "meta.",
                                           "var.",
                                           "self.training",
                                           "self.",
                                           "arg."};
    const char *name = tocsin_symbol_text(vocabulary, clause->field);
    int rank = 0;
    while (rank < (int)TOCSIN_COUNT_OF(prefixes) && !starts_with(name, prefixes[rank]))
        ++rank;
    return rank;
}
