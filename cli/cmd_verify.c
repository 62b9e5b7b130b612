/* cmd_verify.c - `tocsin verify`: is a parallel plan the same maths as its logical model? */
#include <string.h>
#include <tocsin/compose.h>

#include "certifying.h"
#include "cli.h"
#include "conforming.h"
#include "verify_text.h"

enum { FORMAT_TEXT, FORMAT_JSON };

/* "dp=2,pp=2,tp=2,nm=2" */
static bool parse_world(const char *text, tocsin_plan_world *world)
{
    const struct {
        const char *name;
        uint32_t *value;
    } fields[] = {{"dp", &world->dp}, {"pp", &world->pp}, {"tp", &world->tp}, {"nm", &world->nm}};

    while (*text != '\0') {
        char name[3] = "";
        unsigned value = 0;
        int used = 0;
        bool found = false;
        if (sscanf(text, "%2[a-z]=%9u%n", name, &value, &used) != 2 || value == 0)
            return false;
        for (size_t k = 0; k < sizeof fields / sizeof fields[0]; k++) {
            if (strcmp(fields[k].name, name) == 0) {
                *fields[k].value = value;
                found = true;
            }
        }
        text += used;
        if (!found || (*text != ',' && *text != '\0'))
            return false;
        text += *text == ',';
    }
    return true;
}

static int prove_on(tocsin_scale *scale, const cli_operands *operands,
                    tocsin_verify_files_options *options, unsigned format)
{
    tocsin_verify_files_answer answer;
    tocsin_error error;
    const char *logical = operands->items[0], *parallel = operands->items[1];

    options->scale = scale;
    const tocsin_status status = tocsin_verify_files(logical, parallel, options, &answer, &error);
    if (tocsin_scale_rank(scale) != 0) /* rank 0 speaks for all */
        return status == TOCSIN_OK ? 0 : CLI_INPUT;
    if (status != TOCSIN_OK)
        return cli_fail(&error);
    const cli_verification verification = {
        .logical_path = logical, .parallel_path = parallel, .answer = &answer};
    if (format == FORMAT_JSON)
        cli_verify_print_json(&verification, stdout);
    else
        cli_verify_print_text(&verification, stdout);
    const int exit_code = tocsin_verdict_exit_code(answer.result->verdict);
    tocsin_verify_result_free(answer.result);
    return exit_code;
}

static int prove(const cli_operands *operands, tocsin_verify_files_options *options,
                 unsigned format)
{
    tocsin_scale *scale;
    tocsin_error error;

    if (tocsin_scale_begin(&scale, &error) != TOCSIN_OK)
        return cli_fail(&error);
    const int exit_code = prove_on(scale, operands, options, format);
    (void)fflush(stdout);
    return tocsin_scale_end(scale, exit_code);
}

int cmd_verify(int argc, char **argv)
{
    const char *world = NULL, *certificate = NULL;
    unsigned order = TOCSIN_PLAN_ORDER_GROUP, format = FORMAT_TEXT;
    uint64_t causes = 20;
    bool conform = false;
    tocsin_verify_files_options verifying = {0};
    tocsin_plan_options *reading = &verifying.parallel;
    const cli_option options[] = {
        {"world", 'w', CLI_TEXT, "SIZES", "of a pickled plan's world, as dp=2,pp=2,tp=2", &world},
        {"order", 0, CLI_CHOICE, "group|metadata", "of groups in pickled plans", &order},
        {"ops", 0, CLI_TEXT, "FILE", "declarations of operators: op NAME SIGNATURE",
         &reading->operators_path},
        {"enumerate", 0, CLI_FLAG, NULL, "every replica and micro-batch on its own",
         &verifying.proving.enumerate},
        {"certificate", 0, CLI_TEXT, "FILE", "when proved, write the proof for --check",
         &verifying.proving.certificate_path},
        {"cache", 0, CLI_TEXT, "DIR",
         "keep what is proved there; prove again only the parts that changed", &verifying.cache},
        {"check", 0, CLI_TEXT, "FILE", "judge a certificate of these plans instead", &certificate},
        {"causes", 'n', CLI_COUNT, "N", "show at most so many causes (default: 20)", &causes},
        {"conform", 0, CLI_FLAG, NULL, "did a run keep to a plan? operands: PLAN RUN", &conform},
        {"format", 0, CLI_CHOICE, "text|json", "form of the report (default: text)", &format},
    };
    const cli_usage usage = {
        .command = "verify",
        .synopsis = "LOGICAL PARALLEL",
        .about = "Prove that a parallel training plan computes what its logical model computes:\n"
                 "loss, gradients, updated parameters. Plans are .plan texts, or nnScaler plans\n"
                 "(.pkl, .pkl.zst; read as data, never executed).\n"
                 "Exit status: 0 proved, 1 refuted, 2 unusable input, 3 undecided.",
        .example = "tocsin verify logical.plan parallel.plan",
        .options = options,
        .option_count = sizeof options / sizeof options[0],
    };
    cli_operands operands;
    int exit_code;

    if (cli_options_end(&usage, argc, argv, &operands, &exit_code))
        return exit_code;
    if (operands.count != 2) {
        cli_error("tocsin verify needs %s, not %zu",
                  conform ? "a plan and a recording" : "two plans", operands.count);
        cli_hint(conform ? "tocsin verify --conform PLAN RUN" : "tocsin verify LOGICAL PARALLEL");
        return CLI_INPUT;
    }
    if (world != NULL && !parse_world(world, &reading->world)) {
        cli_error("--world %s: it is written dp=2,pp=2,tp=2,nm=2", world);
        return CLI_INPUT;
    }
    reading->order = (tocsin_plan_order)order;
    if (conform)
        return cli_conform(operands.items[0], reading, operands.items[1], format == FORMAT_JSON);
    if (certificate != NULL)
        return cli_certify(certificate, operands.items[0], operands.items[1], reading,
                           format == FORMAT_JSON);
    verifying.proving.causes_max = causes > 1000000 ? 1000000 : (uint32_t)causes;
    verifying.logical = *reading;
    verifying.logical.world = (tocsin_plan_world){0}; /* --world is the parallel plan's */
    return prove(&operands, &verifying, format);
}
