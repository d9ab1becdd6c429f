/* What calls are to give. A program goes on behind what is not so, and ends with `failures != 0`. */
#ifndef EXPECT_H
#define EXPECT_H

#include <pagewire.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define EXPECT(code, call) expect(__LINE__, #call, code, call)
#define REQUIRE(holds) ((holds) ? (void)0 : (void)((void)failures++, fprintf(stderr, "%d: not so: %s\n", __LINE__, #holds)))
#define SAYS(text)                                                                                                              \
    (strstr(pw_error_message(), text)                                                                                            \
         ? (void)0                                                                                                               \
         : (void)((void)failures++, fprintf(stderr, "%d: no '%s' in '%s'\n", __LINE__, text, pw_error_message())))

static atomic_int failures;

/* A refusal has a sentence. */
static void expect(int line, const char *call, int expected, int found)
{
    if (expected == found && (found == PW_OK || *pw_error_message()))
        return;
    fprintf(stderr, "%d: %s is %s, not %s: %s\n", line, call, pw_error_name(found), pw_error_name(expected),
            pw_error_message());
    failures++;
}

#endif /* EXPECT_H */
