/* What the programs beside this file have in common. */
#include <stdio.h>
#include <stdlib.h>

#include "samum.h"

/* Ends the program unless `call` has the wanted value. */
#define EXPECT(wanted, call) \
    do { \
        long its_value = (long)(call); \
        if (its_value != (long)(wanted)) { \
            fprintf(stderr, "%s:%d: %s is %ld, not %ld\n", __FILE__, __LINE__, #call, its_value, (long)(wanted)); \
            exit(1); \
        } \
    } while (0)

static samum_queue *queue;

/* Waits for one completion, for ten seconds at most. */
static struct samum_completion completion(void) {
    struct samum_completion one;
    size_t count = 99;
    EXPECT(0, samum_wait(queue, 10000, &one, 1, &count));
    EXPECT(1, count);
    return one;
}
