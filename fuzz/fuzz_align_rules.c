/* Any bytes as a file of rules of alignment: an error, or rules that are whole and can be found. */
#include <base/base.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <tocsin/align_rules.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    tocsin_error error;
    tocsin_align_rules *rules;
    int fd = memfd_create("rules", MFD_CLOEXEC);
    if (fd < 0 || (size > 0 && write(fd, data, size) != (ssize_t)size))
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (tocsin_align_rules_new("2026-11-29", &rules, &error) != TOCSIN_OK)
        abort();
    if (tocsin_align_rules_read(rules, path, &error) == TOCSIN_OK) {
        for (size_t i = 0; i < tocsin_align_rules_count(rules); ++i) {
            const tocsin_align_rule *rule = tocsin_align_rules_get(rules, i);
            size_t found = tocsin_align_rules_find(rules, rule->id); /* a pattern fits itself */
            if (rule->because[0] == '\0' || !tocsin_text_is_date(rule->until) ||
                (!rule->expired && found > i))
                abort();
        }
    }
    tocsin_align_rules_free(rules);
    close(fd);
    return 0;
}
