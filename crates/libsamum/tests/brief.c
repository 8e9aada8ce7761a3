/* A queue, a timer and its completion: the least that a program does, for tools that run programs in their own way. */

#include <samum.h>
#include <stdint.h>

int main(void) {
    samum_queue *queue;
    if (samum_queue_new(&queue) != 0)
        return 2;
    struct samum_completion done;
    size_t count = 0;
    if (samum_timer(queue, 1, 7, NULL) != 0 || samum_wait(queue, 10000, &done, 1, &count) != 0)
        return 3;
    if (count != 1 || done.event != SAMUM_TIMER || done.token != 7)
        return 4;
    return samum_queue_free(queue);
}
