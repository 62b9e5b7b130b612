/* gate.c - may a staged checkpoint be published, and publishing it.
 *
 * Invariant: whatever the evidence lacks keeps the checkpoint back: a check that has not passed at
 * this very step has not passed. At each moment of publishing the old or the new one has the name,
 * and both are whole; only where a file system cannot exchange two names, a folder's is free for a
 * moment.
 */
#include <base/base.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include <tocsin/gate.h>

const char *tocsin_gate_mode_name(tocsin_gate_mode mode)
{
    return mode == TOCSIN_GATE_AUDIT ? "audit" : "vote";
}

const char *tocsin_gate_state_name(tocsin_gate_state state)
{
    return state == TOCSIN_GATE_CANDIDATE  ? "candidate"
           : state == TOCSIN_GATE_VERIFIED ? "verified"
                                           : "quarantined";
}

static tocsin_gate_state keep_back(char reason[TOCSIN_GATE_REASON_BYTES], const char *check,
                                   const tocsin_gate_evidence *evidence)
{
    snprintf(reason, TOCSIN_GATE_REASON_BYTES, "the %s did not pass at step %" PRId64, check,
             evidence->step);
    return TOCSIN_GATE_QUARANTINED;
}

tocsin_gate_state tocsin_gate_decide(const tocsin_gate_evidence *evidence,
                                     char reason[TOCSIN_GATE_REASON_BYTES])
{
    reason[0] = '\0';
    if (evidence->step > 0 && evidence->gradients_step != evidence->step)
        return keep_back(reason, "check of the gradients", evidence);
    if (evidence->weights_step != evidence->step)
        return keep_back(reason, "vote on the weights", evidence);
    if (evidence->mode == TOCSIN_GATE_AUDIT && evidence->step > 0 &&
        evidence->replay_step != evidence->step)
        return keep_back(reason, "replay", evidence);
    if (evidence->unreadable > 0) {
        snprintf(reason, TOCSIN_GATE_REASON_BYTES,
                 "what was written cannot be read back (ranks: %" PRIu64 ")", evidence->unreadable);
        return TOCSIN_GATE_QUARANTINED;
    }
    if (evidence->differing > 0) {
        snprintf(reason, TOCSIN_GATE_REASON_BYTES,
                 "what was written is not what was to be saved (entries: %" PRIu64 ")",
                 evidence->differing);
        return TOCSIN_GATE_QUARANTINED;
    }
    if (evidence->replicas < 2) {
        snprintf(reason, TOCSIN_GATE_REASON_BYTES,
                 "there is no second replica of some tensors: nobody could vote on them");
        return TOCSIN_GATE_CANDIDATE;
    }
    return TOCSIN_GATE_VERIFIED;
}

/* Where names cannot be exchanged: the old folder steps aside. */
static tocsin_status step_aside(const char *staged, const char *path, tocsin_error *error)
{
    tocsin_string aside = {0};
    tocsin_string_printf(&aside, "%s.replaced", path);
    tocsin_status status = tocsin_string_check(&aside, error);
    if (status == TOCSIN_OK)
        status = tocsin_file_rename(path, aside.text, false, error);
    if (status == TOCSIN_OK)
        status = tocsin_file_rename(staged, path, false, error);
    if (status == TOCSIN_OK)
        status = tocsin_file_rename(aside.text, staged, false, error);
    tocsin_string_free(&aside);
    return status;
}

tocsin_status tocsin_gate_publish(const char *staged, const char *path, bool *replaced,
                                  tocsin_error *error)
{
    struct stat there;
    *replaced = stat(path, &there) == 0 && S_ISDIR(there.st_mode);
    tocsin_status status = tocsin_file_rename(staged, path, *replaced, error);
    if (status == TOCSIN_E_UNSUPPORTED)
        status = step_aside(staged, path, error);
    if (status == TOCSIN_OK)
        status = tocsin_file_sync_folder(path, error);
    return status;
}
